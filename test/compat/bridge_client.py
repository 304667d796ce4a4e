"""Drives the bridge with the sandbox client of OpenAI's Agents SDK. No model takes part.

The environment has BRIDGE_URL and CLOUDFLARE_SANDBOX_API_KEY. Each check prints a line with its name.
"""

import asyncio
import io
import os
import tarfile
import tempfile
from pathlib import Path

from agents.extensions.sandbox import (
    CloudflareBucketMountStrategy,
    CloudflareSandboxClient,
    CloudflareSandboxClientOptions,
)
from agents.sandbox import LocalSnapshotSpec, Manifest
from agents.sandbox.entries import File, S3Mount
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError

OPTIONS = CloudflareSandboxClientOptions(worker_url=os.environ["BRIDGE_URL"])
BYTES = bytes(range(256)) * 8192  # 2 MiB, of every byte


def ok(name: str, holds: bool, detail: object = "") -> None:
    if not holds:
        raise SystemExit(f"{name}: {detail!r}")
    print(name, flush=True)


async def commands(session) -> None:
    done = await session.exec("printf 'a b' && echo err >&2 && exit 3")
    ok("exec", (done.stdout, done.stderr, done.exit_code) == (b"a b", b"err\n", 3), done)
    done = await session.exec("printf", r"\377\000\376", shell=False)
    ok("exec gives every byte", done.stdout == b"\xff\x00\xfe", done)
    done = await session.exec("sleep 60", timeout=0.5)
    ok("time limit", done.exit_code == 124 and b"Command timed out after 500ms" in done.stderr, done)
    done = await session.exec("pwd")
    ok("the folder is /workspace", done.stdout == b"/workspace\n", done)


async def files(session) -> None:
    await session.write(Path("dir/all.bin"), io.BytesIO(BYTES)) if await made(session, "dir") else None
    ok("write and read", (await session.read(Path("dir/all.bin"))).read() == BYTES)
    try:
        await session.read(Path("none"))
        ok("a missing file", False)
    except WorkspaceReadNotFoundError:
        ok("a missing file", True)
    names = sorted(Path(entry.path).name for entry in await session.ls("."))
    ok("ls", {"README.md", "dir"} <= set(names), names)
    await session.rm("dir", recursive=True)
    ok("rm", (await session.exec("test -e dir")).exit_code == 1)


async def made(session, name: str) -> bool:
    await session.mkdir(name)
    return True


async def archives(session) -> None:
    await session.write(Path("kept"), io.BytesIO(b"kept"))
    session.register_persist_workspace_skip_path("left-out")
    await session.exec("mkdir left-out && echo x > left-out/f")
    packed = (await session.persist_workspace()).read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    ok("persist", "kept" in names and not any(n.startswith("left-out") for n in names), names)
    await session.exec("rm kept")
    await session.hydrate_workspace(io.BytesIO(packed))
    ok("hydrate", (await session.read(Path("kept"))).read() == b"kept")


async def terminals(session) -> None:
    one = await session.pty_exec_start("python3", shell=False, tty=True, yield_time_s=2)
    two = await session.pty_exec_start("sh", shell=False, tty=True, yield_time_s=1)
    ok("two terminals", one.process_id is not None and two.process_id not in (None, one.process_id), (one, two))
    seen = b""
    for chars in ("print(5 + 5)\n", "", "", "", ""):
        seen += (await session.pty_write_stdin(session_id=one.process_id, chars=chars, yield_time_s=1)).output
        if b"10" in seen:
            break
    ok("a terminal keeps its program", b"10" in seen, seen)
    ended = await session.pty_write_stdin(session_id=two.process_id, chars="exit 0\nexit 5\n", yield_time_s=5)
    ok("a terminal's exit code", ended.exit_code == 5, ended)
    await session.pty_terminate_all()


async def one_sandbox() -> None:
    client = CloudflareSandboxClient(exec_timeout_s=20)
    manifest = Manifest(entries={"README.md": File(content=b"# read me\n")})
    with tempfile.TemporaryDirectory() as kept:
        session = await client.create(manifest=manifest, snapshot=LocalSnapshotSpec(base_path=Path(kept)), options=OPTIONS)
        await session.start()
        ok("create", await session.running() and (await session.read(Path("README.md"))).read() == b"# read me\n")
        for part in (commands, files, archives, terminals):
            await part(session)
        await session.stop()
        again = await client.resume(session.state)
        await again.start()
        ok("resume", (await again.read(Path("kept"))).read() == b"kept")
        await client.delete(again)
        ok("delete", not await session.running())
        fresh = await client.resume(session.state)
        await fresh.start()
        ok("resume from the snapshot", (await fresh.read(Path("kept"))).read() == b"kept")
        await client.delete(fresh)


def mounted() -> Manifest:
    mount = S3Mount(bucket="models", endpoint_url="hutch:volumes", read_only=False, mount_strategy=CloudflareBucketMountStrategy())
    return Manifest(entries={"data": mount})


async def mounts() -> None:
    client = CloudflareSandboxClient(exec_timeout_s=20)
    one = await client.create(manifest=mounted(), options=OPTIONS)
    await one.start()
    ok("mount", (await one.exec("cat data/given")).stdout == b"from the volume\n", await one.exec("ls -la data"))
    await one.exec("echo from a sandbox > data/new")
    await client.delete(one)
    two = await client.create(manifest=mounted(), options=OPTIONS)
    await two.start()
    ok("what a mount writes stays", (await two.exec("cat data/new")).stdout == b"from a sandbox\n", await two.exec("ls -la data"))
    await client.delete(two)


async def refusals() -> None:
    wrong = CloudflareSandboxClientOptions(worker_url=os.environ["BRIDGE_URL"], api_key="wrong")
    try:
        await CloudflareSandboxClient().create(options=wrong)
        ok("a wrong key", False)
    except Exception as err:  # ConfigurationError
        ok("a wrong key", "401" in str(err), err)
    slow = CloudflareSandboxClient(exec_timeout_s=20)
    session = await slow.create(options=OPTIONS)
    await session.start()
    try:
        await session.exec("exec 1>&- 2>&-; sleep 60", timeout=0.5)
    except ExecTimeoutError:
        pass
    ok("a silent command ends", True)
    await slow.delete(session)


asyncio.run(one_sandbox())
asyncio.run(mounts())
asyncio.run(refusals())
