"""Runs inspect_ai's own checks of a sandbox provider, and prints which failed and why.

python tests/self_check.py [IMAGE [USER]]
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from inspect_ai.util._sandbox import self_check

from hutch.inspect import HutchConfig, HutchSandboxEnvironment


async def main(image: str | None = None, user: str | None = None) -> None:
    config = HutchConfig(image=image, user=user)
    environments = await HutchSandboxEnvironment.sample_init("self-check", config, {})
    failed = []
    try:
        for name in self_check.__all__:
            try:
                await getattr(self_check, name)(environments["default"])
            except (Exception, AssertionError) as e:
                failed.append(f"FAILED {name}: {type(e).__name__}: {str(e)[:300]}")
    finally:
        await HutchSandboxEnvironment.sample_cleanup("self-check", config, environments, False)
    print(*failed, sep="\n")
    print(f"inspect_ai {version('inspect_ai')}: {len(self_check.__all__) - len(failed)} of {len(self_check.__all__)} checks pass")


asyncio.run(main(*sys.argv[1:]))
