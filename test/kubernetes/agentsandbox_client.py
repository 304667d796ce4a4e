"""What users do with the client of agent-sandbox, unchanged, on a real API server. Each check prints a line."""

import asyncio
import io
import os
import sys
import time

from k8s_agent_sandbox import AsyncSandboxClient, SandboxClient
from k8s_agent_sandbox.exceptions import (
    SandboxClaimFailedError,
    SandboxRequestError,
    SandboxTemplateNotFoundError,
    SandboxWarmPoolNotFoundError,
)
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

ROUTER = os.environ["ROUTER"]
NAMESPACE = "team-a"


def connection(token: str | None = os.environ["ROUTER_TOKEN"], port: int = 8888) -> SandboxDirectConnectionConfig:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return SandboxDirectConnectionConfig(api_url=ROUTER, server_port=port, extra_headers=headers)


def ok(what: str, came: object = "yes") -> None:
    print(f"| {what} | {came} |", flush=True)


def refused(error: type[Exception], call, words: str = "") -> Exception:
    try:
        call()
    except error as e:
        assert words in str(e), f"{e} does not say {words!r}"
        return e
    raise AssertionError(f"no {error.__name__}")


def everything() -> None:
    with SandboxClient(connection_config=connection()) as client:
        begin = time.monotonic()
        sandbox = client.create_sandbox("python", NAMESPACE, labels={"test": "one"}, pod_labels={"app": "x"})
        ok("`create_sandbox` from a warm pool", f"{(time.monotonic() - begin) * 1000:.0f} ms")
        other = client.create_sandbox("python", NAMESPACE)
        assert other.sandbox_id != sandbox.sandbox_id
        ok("two claims get two sandboxes")

        result = sandbox.commands.run("echo out; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code, result.timed_out) == ("out\n", "err\n", 3, False), result
        result = sandbox.commands.run("sleep 60", command_timeout=1)
        assert result.timed_out and result.exit_code == 124, result
        assert sandbox.commands.run("echo $FROM_TEMPLATE").stdout == "yes\n"
        ok("`commands.run`: output, exit codes, time limits, variables of the template")

        data = bytes(range(256)) * 40_000
        sandbox.files.write("data/ä b%20.bin", data)
        assert sandbox.files.read("data/ä b%20.bin") == data
        sandbox.files.write("stream.bin", io.BytesIO(data))
        copy = io.BytesIO()
        assert sandbox.files.read_to("stream.bin", copy) == len(data) and copy.getvalue() == data
        sandbox.files.write("text.txt", "hello")
        assert sandbox.commands.run("cat text.txt").stdout == "hello"
        kinds = {e.name: (e.type, e.size) for e in sandbox.files.list(".")}
        assert kinds["data"][0] == "directory" and kinds["stream.bin"] == ("file", len(data)), kinds
        assert sandbox.files.exists("text.txt") and not sandbox.files.exists("none")
        e = refused(SandboxRequestError, lambda: sandbox.files.read("none"))
        assert e.status_code == 404, e
        assert not other.files.exists("text.txt")
        ok("`files`: write, read, streams of 10 MB, list, exists")

        assert sandbox.status()[0] == "SandboxReady"
        assert client.list_all_sandboxes(NAMESPACE, label_selector="test=one") == [sandbox.claim_name]
        assert client.get_sandbox(other.claim_name, NAMESPACE).sandbox_id == other.sandbox_id
        assert client.get_sandbox_claim_warmpool_name(other.claim_name, NAMESPACE) == "python"
        ok("`status`, `list_all_sandboxes`, `get_sandbox`")

        named = client.create_sandbox("python", NAMESPACE, claim_name="mine.v1")
        named.files.write("kept", "1")
        again = client.create_sandbox("python", NAMESPACE, claim_name="mine.v1", adopt_existing=True)
        assert again.sandbox_id == named.sandbox_id and again.files.read("kept") == b"1"
        ok("`claim_name` with a dot, `adopt_existing`")
        again.terminate()

        short = client.create_sandbox("python", NAMESPACE, shutdown_after_seconds=3)
        for _ in range(200):
            if short.claim_name not in client.list_all_sandboxes(NAMESPACE):
                break
            time.sleep(0.1)
        else:
            raise AssertionError("it stays")
        ok("`shutdown_after_seconds` ends the claim")

        own = client.create_sandbox("open", NAMESPACE, env={"B": "2"})
        assert own.commands.run("echo $FROM_TEMPLATE $B").stdout == "yes 2\n"
        ok("`env` where the template allows it, in a new sandbox")
        refused(SandboxClaimFailedError, lambda: client.create_sandbox("python", NAMESPACE, env={"B": "2"}), "EnvVarsInjectionRejected")
        refused(SandboxClaimFailedError, lambda: client.create_sandbox("python", NAMESPACE, volume_claim_templates=[{"metadata": {"name": "v"}}]), "VolumeClaimTemplatesError")
        refused(SandboxClaimFailedError, lambda: client.create_sandbox("python", NAMESPACE, pod_labels={"a.kubernetes.io/b": "c"}), "InvalidMetadata")
        refused(SandboxClaimFailedError, lambda: client.create_sandbox("unmapped", NAMESPACE), "containers[0].volumeMounts")
        refused(SandboxWarmPoolNotFoundError, lambda: client.create_sandbox("none", NAMESPACE))
        refused(SandboxTemplateNotFoundError, lambda: client.create_sandbox("no-template", NAMESPACE))
        ok("claims that cannot be met end with the client's own exceptions")

        sandbox.commands.run("nohup python3 -m http.server 3000 --directory /workspace >/dev/null 2>&1 </dev/null & sleep 1")
        names = client.list_all_sandboxes(NAMESPACE)
        for claim in (sandbox.claim_name, other.claim_name):
            client.delete_sandbox(claim, NAMESPACE)
        assert not set(client.list_all_sandboxes(NAMESPACE)) & {sandbox.claim_name, other.claim_name}, names
        ok("`delete_sandbox`")


def strangers() -> None:
    """A token of one namespace opens nothing of another, and no token opens nothing."""
    with SandboxClient(connection_config=connection()) as client:
        mine = client.create_sandbox("python", NAMESPACE)
        for token, status in ((None, 401), ("nonsense", 401), (os.environ["STRANGER_TOKEN"], 403)):
            mine.connector._extra_headers = connection(token).extra_headers
            e = refused(SandboxRequestError, lambda: mine.commands.run("id"))
            assert e.status_code == status, (token, e.status_code)
        mine.connector._extra_headers = connection().extra_headers
        mine.connector.namespace = "team-b"
        mine.connector.id = "theirs"
        e = refused(SandboxRequestError, lambda: mine.commands.run("id"))
        assert e.status_code == 403, e.status_code
        mine.connector.namespace = NAMESPACE
        e = refused(SandboxRequestError, lambda: mine.commands.run("id"))
        assert e.status_code == 404, e.status_code
        mine.connector.id = mine.sandbox_id
        assert mine.commands.run("echo in").stdout == "in\n"
        ok("tokens of other namespaces, wrong ones and none reach nothing")


async def asynchronously() -> None:
    async with AsyncSandboxClient(connection_config=connection()) as client:
        boxes = await asyncio.gather(*(client.create_sandbox("python", NAMESPACE) for _ in range(4)))
        outs = await asyncio.gather(*(b.commands.run(f"echo {i}") for i, b in enumerate(boxes)))
        assert [o.stdout for o in outs] == [f"{i}\n" for i in range(4)], outs
        await boxes[0].files.write("a", b"1")
        assert await boxes[0].files.read("a") == b"1"
        assert len({b.sandbox_id for b in boxes}) == 4
    ok("`AsyncSandboxClient`: four claims at once")


def keep() -> None:
    """Leaves a claim for the next step of the test."""
    client = SandboxClient(connection_config=connection())
    box = client.create_sandbox("python", NAMESPACE, claim_name="kept")
    box.files.write("kept.txt", "still here")


def find() -> None:
    client = SandboxClient(connection_config=connection())
    assert client.get_sandbox("kept", NAMESPACE).files.read("kept.txt") == b"still here"
    fresh = client.create_sandbox("python", NAMESPACE)
    assert fresh.commands.run("echo new").stdout == "new\n"
    fresh.terminate()


if __name__ == "__main__":
    step = globals()[sys.argv[1]]
    result = step()
    if asyncio.iscoroutine(result):
        asyncio.run(result)
