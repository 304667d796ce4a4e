"""The cases of sdk/contract, with the async and the sync client, against the server at HUTCH_URL."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import contract
import pytest

from hutch import AsyncHutch, Hutch

here = Path(__file__).resolve().parent
files = [json.loads(p.read_text()) for p in sorted((here.parent.parent / "contract/cases").glob("*.json"))]

sys.path.insert(0, str(here.parent / "tools"))
import unasync  # noqa: E402


def sync_contract() -> Any:
    """The runner for the sync client, made of the async one."""
    module = types.ModuleType("contract_sync")
    sys.modules[module.__name__] = module
    exec(compile(unasync.sync((here / "contract.py").read_text()).replace("hutch._async", "hutch._sync"), "contract_sync.py", "exec"), module.__dict__)
    return module


@cache
def results(mode: str) -> dict[str, dict[str, str | None]]:
    """Runs all files at once, and returns what each case failed with."""
    if mode == "async":

        async def run() -> list[dict[str, str | None]]:
            async with AsyncHutch() as hutch:
                return await asyncio.gather(*(contract.Runner(hutch).file(f) for f in files))

        got = asyncio.run(run())
    else:
        runner = sync_contract().Runner
        with Hutch() as hutch, ThreadPoolExecutor(len(files)) as pool:
            got = list(pool.map(lambda f: runner(hutch).file(f), files))
    return {f["name"]: r for f, r in zip(files, got, strict=True)}


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize(("file", "case"), [(f["name"], c["name"]) for f in files for c in f["cases"]])
def test_case(mode: str, file: str, case: str) -> None:
    error = results(mode)[file][case]
    if error is not None and error.startswith(contract.MISSING) and not os.environ.get("CI"):
        pytest.skip(error)
    assert error is None, error
