"""Drives a sandbox with RemoteRuntime of SWE-ReX. The environment has SWEREX_URL and SWEREX_KEY. Each check prints a line with its name."""

import asyncio
import os
import tempfile
from pathlib import Path

from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from swerex.runtime.remote import RemoteRuntime

box = RemoteRuntime(host=os.environ["SWEREX_URL"], port=None, auth_token=os.environ["SWEREX_KEY"])


def ok(name: str, holds: bool, detail: object = "") -> None:
    if not holds:
        raise SystemExit(f"{name}: {detail!r}")
    print("ok " + name, flush=True)


async def raises(name: str, kind: type, call) -> BaseException:
    try:
        got = await call
    except kind as err:
        ok(name, True)
        return err
    raise SystemExit(f"{name}: {got!r} and no {kind.__name__}")


def run(command: str, **more):
    return box.run_in_session(BashAction(command=command, **{"timeout": 10, **more}))


async def execution() -> None:
    ok("is_alive", bool(await box.is_alive()))
    done = await box.execute(Command(command=["sh", "-c", "echo out; echo err >&2; exit 3"]))
    ok("execute", (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 3), done)
    done = await box.execute(Command(command="echo $A; echo e >&2", shell=True, env={"A": "b"}, merge_output_streams=True))
    ok("execute in a shell", (done.stdout, done.stderr) == ("b\ne\n", ""), done)
    await raises("execute with check", NonZeroExitCodeError, box.execute(Command(command=["false"], check=True)))
    await raises("execute too long", CommandTimeoutError, box.execute(Command(command=["sleep", "10"], timeout=0.1)))


async def files() -> None:
    await box.write_file(WriteFileRequest(path="/workspace/new/a.txt", content="ä\n"))
    ok("files", (await box.read_file(ReadFileRequest(path="/workspace/new/a.txt"))).content == "ä\n")
    await raises("a missing file", FileNotFoundError, box.read_file(ReadFileRequest(path="none")))
    with tempfile.TemporaryDirectory() as dir:
        (Path(dir) / "sub").mkdir()
        (Path(dir) / "sub" / "f").write_text("of the folder")
        await box.upload(UploadRequest(source_path=dir, target_path="/workspace/up"))
        await box.upload(UploadRequest(source_path=dir + "/sub/f", target_path="/workspace/x/one"))
    ok("upload of a folder", (await box.read_file(ReadFileRequest(path="up/sub/f"))).content == "of the folder")
    ok("upload of a file", (await box.read_file(ReadFileRequest(path="/workspace/x/one"))).content == "of the folder")


async def sessions() -> None:
    await box.write_file(WriteFileRequest(path="/workspace/start.sh", content="export STARTED=yes; echo sourced\n"))
    made = await box.create_session(CreateBashSessionRequest(startup_source=["/workspace/start.sh"]))
    ok("create_session", "sourced" in made.output, made)
    await raises("a session that exists", SessionExistsError, box.create_session(CreateBashSessionRequest()))
    seen = await run("cd /tmp; x=42; echo $STARTED\n\n echo 'a\n b'\n")
    ok("run_in_session", (seen.output, seen.exit_code) == ("yes\na\n b\n", 0), seen)
    seen = await run("cat <<EOF\n$PWD $x\nEOF")
    ok("a session keeps its state", seen.output == "/tmp 42\n", seen)
    ok("exit codes", (await run("false", check="silent")).exit_code == 1 and (await run("nosuchprogram", check="silent")).exit_code == 127)
    await raises("check", NonZeroExitCodeError, run("false"))
    bad = await raises("wrong syntax", BashIncorrectSyntaxError, run("(a"))
    ok("what bash says", "syntax error" in bad.extra_info["bash_stderr"], bad.extra_info)
    await raises("a session that is not there", SessionDoesNotExistError, run("true", session="none"))
    await raises("a command too long", CommandTimeoutError, run("sleep 30", timeout=0.3))
    await box.run_in_session(BashInterruptAction())
    ok("after an interrupt", (await run("echo asdf")).output.endswith("asdf\n"))
    ok("long output", len((await run("seq 100000")).output) == 588895)


async def programs() -> None:
    ask = {"is_interactive_command": True, "expect": [">>> "]}
    await run("python3 -q", **ask)
    seen = await run("print(6 * 7)", **ask)
    ok("an interactive program", "42" in seen.output and seen.expect_string == ">>> ", seen)
    await run("quit()\n", is_interactive_quit=True)
    ok("after the program", (await run("echo back")).output == "back\n")
    await box.close_session(CloseBashSessionRequest())
    await raises("a closed session", SessionDoesNotExistError, box.close_session(CloseBashSessionRequest()))


async def main() -> None:
    for part in (execution, files, sessions, programs):
        await part()
    await box.create_session(CreateBashSessionRequest(session="left"))
    await box.close()
    await raises("close", SessionDoesNotExistError, run("true", session="left"))
    wrong = RemoteRuntime(host=os.environ["SWEREX_URL"], port=None, auth_token="wrong")
    ok("a wrong key", not await wrong.is_alive())


asyncio.run(main())
