"""Hutch as a sandbox of inspect_ai: `pip install "./sdk/python[inspect]"`, then `sandbox="hutch"` in a task.

The server is that of HUTCH_URL and HUTCH_TOKEN. `sandbox=("hutch", "python:3.12-slim")` names an image, and
`SandboxEnvironmentSpec("hutch", HutchConfig(...))` sets more.
"""

from __future__ import annotations

import posixpath
import secrets
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel
from typing_extensions import override

from ._async.client import AsyncHutch
from ._async.sandbox import AsyncSandbox
from ._errors import ConflictError, DeniedError, HutchError, InvalidError, NotFoundError, UnsupportedError
from ._models import Limits, Network

#: The label of the sandboxes of this module, with which `inspect sandbox cleanup hutch` finds them.
LABEL = "inspect"
#: The longest time limit of a command with the default settings of a server.
LONGEST = 86400
#: The largest input that is sent with a command. Larger input goes through a file.
LARGE_INPUT = 1 << 20
#: The same for arguments.
LARGE_ARGUMENTS = 512 << 10
#: The most output that a server keeps for a result.
MOST_OUTPUT = 16 << 20


class HutchConfig(BaseModel):
    """The settings of the sandbox of a sample."""

    model_config = {"frozen": True}

    image: str | None = None
    template: str | None = None
    runtime: str | None = None
    instance_type: str | None = None
    user: str | None = None
    env: dict[str, str] = {}
    #: Cores, and MiB.
    cpu: float | None = None
    memory: int | None = None
    disk: int | None = None
    #: Destinations that it can reach, such as "pypi.org".
    allow: list[str] = []
    network: Literal["none", "allow-list", "open"] | None = None


@sandboxenv(name="hutch")
class HutchSandboxEnvironment(SandboxEnvironment):
    def __init__(self, hutch: AsyncHutch, sandbox: AsyncSandbox, config: HutchConfig) -> None:
        self.hutch = hutch
        self.sandbox = sandbox
        self.config = config

    @override
    @classmethod
    async def sample_init(cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        c = config if isinstance(config, HutchConfig) else HutchConfig(image=config if isinstance(config, str) else None)
        hutch = AsyncHutch()
        try:
            sandbox = await hutch.create(
                image=c.image,
                template=c.template,
                runtime=c.runtime,
                instance_type=c.instance_type,
                user=c.user,
                env=c.env or None,
                limits=Limits(cpu=c.cpu, memory=c.memory, disk=c.disk) if c.cpu or c.memory or c.disk else None,
                network=Network(mode=c.network, allow=list(c.allow)) if c.network or c.allow else None,
                labels={LABEL: task_name[:1000]},
            )
        except BaseException:
            await hutch.aclose()
            raise
        return {"default": cls(hutch, sandbox, c)}

    @override
    @classmethod
    async def sample_cleanup(cls, task_name: str, config: BaseModel | str | None, environments: dict[str, SandboxEnvironment], interrupted: bool) -> None:
        for environment in environments.values():
            own = environment.as_type(cls)
            try:
                await own.sandbox.destroy(force=True)
            finally:
                await own.hutch.aclose()

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with AsyncHutch() as hutch:
            ids = [id] if id else [s.sandbox_id for s in await hutch.list_sandboxes(brief=True) if LABEL in s.labels]
            for sandbox_id in ids:
                await hutch.destroy(sandbox_id)

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return HutchConfig(**config)

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="hutch", command=f"hutch shell {self.sandbox.sandbox_id}")

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command once, whatever timeout_retry says: after a timeout it may have done half of its work."""
        stdin = input.encode() if isinstance(input, str) else input
        command, args, files = 'exec "$@"', cmd, []
        if sum(len(arg.encode()) + 1 for arg in cmd) > LARGE_ARGUMENTS:
            files.append((f"/tmp/.arguments-{secrets.token_hex(8)}", b"".join(arg.encode() + b"\0" for arg in cmd)))
            command, args = f'mapfile -d "" -t cmd < {files[-1][0]}; exec "${{cmd[@]}}"', []
        if stdin and len(stdin) > LARGE_INPUT:
            files.append((f"/tmp/.input-{secrets.token_hex(8)}", stdin))
            command, stdin = f"{command} < {files[-1][0]}", None
        try:
            for name, data in files:
                await self.sandbox.write_file(name, data, mode=0o644)
            result = await self.sandbox.exec(
                command,
                args=args,
                stdin=stdin,
                cwd=posixpath.join("/workspace", cwd) if cwd else None,
                env=env,
                user=user,
                timeout=timeout or LONGEST,
                max_output=min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, MOST_OUTPUT),
            )
        except UnsupportedError as e:
            if user is None:
                raise
            raise SandboxUserUnsupportedError(f"user {user}: {e.message}") from e
        except InvalidError as e:
            if user is None or "user" not in e.message:
                raise
            return ExecResult(False, 126, "", f"user {user}: {e.message}")
        finally:
            if files:
                await self.sandbox.exec('rm -f -- "$@"', args=[name for name, _ in files])
        if result.timed_out:
            raise TimeoutError(f"the command did not end in {timeout} seconds")
        if result.exit_code == 126 and "permission denied" in result.stderr.lower():
            raise PermissionError(result.stderr)
        if result.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout or result.stderr)
        return ExecResult(result.success, result.exit_code, result.stdout, result.stderr)

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        try:
            await self.sandbox.write_file(file, contents)
        except HutchError as e:
            raise await self._error(file, e) from e

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.sandbox.read_bytes(file, length=limit + 1)
        except HutchError as e:
            raise await self._error(file, e) from e
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    async def _error(self, file: str, error: HutchError) -> Exception:
        """Turns the server's errors about a file into those of Python."""
        if isinstance(error, NotFoundError) and error.data.get("sandboxId") is None:
            return FileNotFoundError(f"{file}: {error.message}")
        if isinstance(error, DeniedError):
            return PermissionError(f"{file}: {error.message}")
        if isinstance(error, ConflictError):
            try:
                if (await self.sandbox.stat(file + "/.")).type == "directory":
                    return IsADirectoryError(f"{file} is a directory: {error.message}")
            except HutchError:
                return NotADirectoryError(f"{file}: {error.message}")
        return error
