"""What needs no server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

import hutch
from hutch import AsyncHutch, Hutch, _models
from hutch._results import CodeResult, ExecResult, RunResult
from hutch._wire import EventParser, query_of, time_of


def test_errors_are_shown_with_the_names_that_programs_import() -> None:
    for name in hutch.__all__:
        value = getattr(hutch, name)
        if isinstance(value, type) and issubclass(value, hutch.HutchError):
            assert f"{value.__module__}.{value.__qualname__}" == f"hutch.{name}"


def test_errors_name_what_the_network_denied() -> None:
    """A program reports only that it cannot reach a name, and check=True shows only its last line."""
    end = {
        **{"success": False, "exitCode": 6, "stdout": "", "stderr": "curl: (6) Could not resolve host: pypi.org\n", "encoding": "utf-8"},
        **{"command": "curl pypi.org", "duration": 5, "timestamp": "2026-11-22T08:21:50Z", "timedOut": False, "truncated": False},
        **{"sandboxId": "a", "denied": ["pypi.org", "10.0.0.1"]},
    }
    text = str(hutch.CommandError(ExecResult.from_json(end)))
    assert text == (
        "the command ended with exit code 6: curl: (6) Could not resolve host: pypi.org"
        " (the sandbox's network denied pypi.org, 10.0.0.1: sandbox.allow('pypi.org', '10.0.0.1') allows it)"
    )
    assert "denied" not in str(hutch.CommandError(ExecResult.from_json({**end, "denied": []})))


RECORD = {
    "sandboxId": "a",
    "status": "running",
    "image": "host",
    "runtime": "gvisor",
    "createdAt": "2026-11-22T08:21:50.120123456Z",
    "lastUsedAt": "2026-11-22T08:21:50Z",
    "uptime": 1,
    "resources": {"cpu": 0, "memory": 0},
    "environment": {"hasAnthropicCredentials": False},
    "keepAlive": False,
    "sleepAfter": 600,
    "onIdle": "hibernate",
    "health": "healthy",
    "limits": {},
    "network": {},
    "processes": None,
    "aFieldOfANewerServer": 1,
}


class Server:
    """Answers with what a test gives, in order, and keeps the requests."""

    def __init__(self, *answers: tuple[int, Any] | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return httpx.Response(status, json=body) if body is not None else httpx.Response(status)

    def client(self) -> Hutch:
        return Hutch("http://hutch.test", "t", http_client=httpx.Client(transport=httpx.MockTransport(self)))


def problem(status: int, kind: str, **data: Any) -> tuple[int, Any]:
    return status, {"type": "about:blank", "title": "", "status": status, "kind": kind, "detail": "why", "data": data}


def test_everything_is_exported() -> None:
    assert set(_models.__all__) <= set(hutch.__all__)
    for name in hutch.__all__:
        assert getattr(hutch, name)
    with pytest.raises(AttributeError):
        _ = hutch.nothing


def test_import_takes_neither_httpx_nor_websockets() -> None:
    assert not modules_of("from hutch import Hutch") & {"httpx", "websockets", "asyncio", "ssl", "email", "http"}
    assert not modules_of("from hutch import AsyncHutch") & {"httpx", "websockets", "ssl", "hutch._sync"}


def test_import_takes_only_what_is_named() -> None:
    ours = {name for name in modules_of("import hutch") if name.startswith("hutch")}
    assert ours == {"hutch", "hutch._errors", "hutch._version"}
    assert not modules_of("import hutch") & {"dataclasses", "inspect", "json", "urllib"}


def test_records_are_compiled_and_not_written_by_the_import() -> None:
    """dataclass writes and compiles its functions at each import. For a hundred records, that took most of the time of an import."""
    for name in _models.__all__:
        record = getattr(_models, name)
        for method in (record.__init__, record.__eq__, record.__repr__):
            assert method.__code__.co_filename == _models.__file__, name


def test_records_are_dataclasses() -> None:
    one, two = _models.VolumeMount(name="data", path="/d"), _models.VolumeMount("data", "/d")
    assert one == two and one != dataclasses.replace(one, path="/e") and one != "data"
    assert dataclasses.asdict(one)["name"] == "data"
    assert repr(one).startswith("VolumeMount(name='data', path='/d'")
    assert _models.Brokering().hosts == [] and _models.Brokering().hosts is not _models.Brokering().hosts
    with pytest.raises(TypeError):
        hash(one)


def modules_of(statement: str) -> set[str]:
    """The modules that a statement imports."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    env = {"PYTHONPATH": str(Path(hutch.__file__).parent.parent)}
    return set(subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout.split())


def test_times_with_any_number_of_digits() -> None:
    utc = timezone.utc
    assert time_of("2026-11-22T08:21:50Z") == datetime(2026, 11, 22, 8, 21, 50, tzinfo=utc)
    assert time_of("2026-11-22T08:21:50.120123456Z") == datetime(2026, 11, 22, 8, 21, 50, 120123, tzinfo=utc)
    assert time_of("2026-11-22T08:21:50.1-07:30").utcoffset() == -timedelta(hours=7, minutes=30)
    with pytest.raises(ValueError):
        time_of("yesterday")


def test_events_in_any_pieces() -> None:
    stream = b': hello\n\nid: 6\r\nevent: stdout\r\ndata: {"a":"\xc3\xa9"}\r\n\r\nevent: exit\ndata: 1\ndata: 2\n\ndata: no name\n\n'
    for size in (1, 2, 7, len(stream)):
        parser, got = EventParser(), []
        for i in range(0, len(stream), size):
            parser.feed(stream[i : i + size])
            while (event := parser.take()) is not None:
                got.append(event)
        assert [(e.name, e.data) for e in got] == [("stdout", '{"a":"é"}'), ("exit", "1\n2")]
        assert got[0].json() == {"a": "é"}


def test_a_large_event_takes_no_longer_than_its_size() -> None:
    parser, piece, began = EventParser(), b"x" * 4096, time.monotonic()
    parser.feed(b"event: stdout\ndata: ")
    for _ in range(8192):
        parser.feed(piece)
    parser.feed(b"\n\n")
    event = parser.take()
    assert event is not None and len(event.data) == 8192 * 4096
    assert time.monotonic() - began < 10


def test_queries() -> None:
    assert query_of(path="a b&é", recursive=False, limit=None, from_="x", name=["p", "q"]) == "?path=a+b%26%C3%A9&from=x&name=p&name=q"
    assert query_of(path="\udcff") == "?path=%FF"


@pytest.mark.parametrize("bad", ["", "..", "a/b", "Upper", "a?b", "-a", "a" * 64, "a\n"])
def test_bad_ids_reach_no_server(bad: str) -> None:
    server = Server()
    with pytest.raises(hutch.InvalidError, match="is not an id"):
        server.client().get(bad)
    assert not server.requests


def test_a_handle_has_its_id_under_both_names() -> None:
    sandbox = Server().client().sandbox("a")
    assert (sandbox.id, sandbox.sandbox_id) == ("a", "a")


def test_a_record_of_a_newer_server() -> None:
    sandbox = Server((200, RECORD)).client().get("a")
    assert sandbox._record is not None
    assert sandbox._record.created_at.microsecond == 120123
    assert sandbox._record.processes == []


def test_reads_are_repeated() -> None:
    server = Server(httpx.ReadError("gone"), problem(503, "unavailable"), (200, RECORD))
    assert server.client().get("a").sandbox_id == "a"
    assert len(server.requests) == 3


def test_a_create_is_repeated_with_one_key() -> None:
    server = Server(httpx.ReadError("gone"), (200, RECORD))
    server.client().create("a")
    first, second = server.requests
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert json.loads(first.content) == {"sandboxId": "a"}


def test_commands_are_not_repeated() -> None:
    server = Server(httpx.ReadError("gone"))
    with pytest.raises(hutch.UnavailableError, match="hutch serve"):
        server.client().sandbox("a").exec("make")
    assert len(server.requests) == 1


def test_a_command_that_was_never_sent_is_repeated() -> None:
    server = Server(httpx.ConnectError("refused"), httpx.ConnectError("refused"), httpx.ConnectError("refused"))
    with pytest.raises(hutch.UnavailableError):
        server.client().sandbox("a").exec("make")
    assert len(server.requests) == 3


def test_a_limit_that_ends_soon_is_waited_for() -> None:
    server = Server(problem(429, "exhausted", retryAfter=0.01), (200, RECORD))
    assert server.client().get("a").sandbox_id == "a"
    server = Server(problem(429, "exhausted", retryAfter=600))
    with pytest.raises(hutch.ExhaustedError) as e:
        server.client().get("a")
    assert e.value.retry_after == 600


def test_errors_have_their_kind() -> None:
    for status, kind, wanted in (
        (404, "not_found", hutch.NotFoundError),
        (401, "denied", hutch.AuthenticationError),
        (403, "denied", hutch.DeniedError),
        (409, "conflict", hutch.ConflictError),
        (422, "unsupported", hutch.UnsupportedError),
        (504, "timeout", hutch.HutchTimeoutError),
        (500, "of-a-newer-server", hutch.InternalError),
    ):
        with pytest.raises(wanted) as e:
            Server(problem(status, kind, sandboxId="a")).client().get("a")
        assert (e.value.status, e.value.message, e.value.data) == (status, "why", {"sandboxId": "a"})


def test_what_is_not_hutch() -> None:
    with pytest.raises(hutch.NotFoundError, match="check the URL"):
        Server((404, None)).client().version()
    with pytest.raises(hutch.InvalidError, match="not the URL"):
        Hutch("hutch.test", "t")


def test_settings_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUTCH_TOKEN", raising=False)
    with pytest.raises(hutch.InvalidError, match="HUTCH_TOKEN is not set"):
        Hutch("http://hutch.test")
    monkeypatch.delenv("HUTCH_URL", raising=False)
    with pytest.raises(hutch.InvalidError, match="HUTCH_URL and HUTCH_TOKEN are not set"):
        Hutch()


def test_a_stream_that_ends_early_is_an_error() -> None:
    text = b'event: stdout\ndata: {"stream":"stdout","data":"a","encoding":"utf-8","cursor":1}\n\n'
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=text)))
    stream = Hutch("http://hutch.test", "t", http_client=client).sandbox("a").exec_stream("make")
    assert next(stream).data == b"a"
    with pytest.raises(hutch.UnavailableError, match="ended early"):
        next(stream)
    with pytest.raises(hutch.HutchError, match="has not ended"):
        _ = stream.result


def test_the_record_of_a_build_and_its_output() -> None:
    record = {"buildId": "b-1", "status": "built", "startedAt": "2026-11-22T08:21:50Z", "steps": 1}
    event = {"step": 1, "state": "log", "text": "x"}
    lines = f"event: progress\ndata: {json.dumps(event)}\n\nevent: end\ndata: {json.dumps(record)}\n\n"
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.path}")
        if request.method == "DELETE":
            return httpx.Response(204)
        if request.url.path == "/v1/builds":
            return httpx.Response(200, json=[record])
        if "text/event-stream" in request.headers["Accept"]:
            return httpx.Response(200, content=lines.encode())
        return httpx.Response(200, json={"build": record, "events": [event]})

    with Hutch("http://hutch.test", "t", http_client=httpx.Client(transport=httpx.MockTransport(answer))) as client:
        assert [build.build_id for build in client.list_builds()] == ["b-1"]
        output = client.read_build("b-1")
        assert (output.build.status, [e.text for e in output.events]) == ("built", ["x"])
        with client.follow_build("b-1") as stream:
            assert [e.text for e in stream] == ["x"]
            assert stream.result.steps == 1
        client.delete_build("b-1")
    assert asked == ["GET /v1/builds", "GET /v1/builds/b-1/logs", "GET /v1/builds/b-1/logs", "DELETE /v1/builds/b-1"]


def test_a_build_sends_a_form_and_returns_the_image() -> None:
    image = {"id": "sha256:2", "names": ["a"], "size": 1, "createdAt": "2026-11-22T08:21:50Z", "pulledAt": "2026-11-22T08:21:50Z"}
    image |= {"usedAt": "2026-11-22T08:21:50Z", "architecture": "amd64", "layers": [], "config": {}}
    step = b'event: progress\ndata: {"step":1,"state":"log","text":"x"}\n\n'
    failed = b'event: error\ndata: {"status":400,"kind":"invalid","detail":"no file"}\n\n'
    asked: list[httpx.Request] = []
    answers = [step + b"event: end\ndata: " + json.dumps(image).encode() + b"\n\n", step + failed, step]

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, content=answers[(len(asked) - 1) % 3])

    def seen(progress: list[hutch.BuildEvent]) -> list[tuple[int, str, str | None]]:
        return [(e.step, e.state, e.text) for e in progress]

    progress: list[hutch.BuildEvent] = []
    with Hutch("http://hutch.test", "t", http_client=httpx.Client(transport=httpx.MockTransport(answer))) as client:
        built = client.build_image("a", dockerfile="FROM scratch", context=iter([b"t", b"ar"]), no_cache=True, on_progress=progress.append)
        assert (built.id, seen(progress)) == ("sha256:2", [(1, "log", "x")])
        with pytest.raises(hutch.InvalidError, match="no file"):
            client.build_image(dockerfile="x")
        with client.build_image_stream(dockerfile="x") as stream, pytest.raises(hutch.UnavailableError, match="the build with it"):
            list(stream)
        asked.pop()
        with client.build_image_stream(dockerfile="x", detach=True) as stream, pytest.raises(hutch.UnavailableError, match="the build continues"):
            list(stream)

    async def run() -> None:
        client = AsyncHutch("http://hutch.test", "t", http_client=httpx.AsyncClient(transport=httpx.MockTransport(answer)))
        async with client, client.build_image_stream("a", context=b"tar") as stream:
            assert seen([e async for e in stream]) == [(1, "log", "x")]
            assert stream.result.id == "sha256:2"

    asyncio.run(run())
    assert [(r.method, r.url.path) for r in asked] == [("POST", "/v1/images/build")] * 4  # a build is not repeated
    first = asked[0].content
    boundary = asked[0].headers["Content-Type"].removeprefix("multipart/form-data; boundary=").encode()
    assert [part.partition(b"\r\n\r\n")[2] for part in first.split(b"--" + boundary)[1:-1]] == [
        b'{"name": "a", "dockerfile": "FROM scratch", "noCache": true}\r\n',
        b"tar\r\n",
    ]
    assert first.endswith(b"--" + boundary + b"--\r\n")
    assert b'name="context"' in first and b'name="context"' not in asked[1].content


def test_a_resumable_stream_goes_on() -> None:
    def piece(cursor: int) -> bytes:
        return b'event: stdout\ndata: {"stream":"stdout","data":"x","encoding":"utf-8","cursor":%d}\n\n' % cursor

    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        if len(asked) == 1:
            return httpx.Response(200, content=b'event: started\ndata: {"execId":"x-1"}\n\n' + piece(1))
        if len(asked) == 2:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, content=piece(2) + b'event: error\ndata: {"status":409,"kind":"conflict","detail":"why"}\n\n')

    async def run() -> list[int]:
        client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        stream = AsyncHutch("http://hutch.test", "t", http_client=client).sandbox("a").exec_stream("make", resumable=True)
        got = []
        with pytest.raises(hutch.ConflictError):
            async for output in stream:
                got.append(output.cursor)
        return got

    assert asyncio.run(run()) == [1, 2]
    again = "GET /v1/sandboxes/a/exec/x-1?cursor=1"
    assert asked == ["POST /v1/sandboxes/a/exec", again, again]


class Silent(httpx.SyncByteStream):
    """A body that stops in the middle, like that of a connection that is lost without an error."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __iter__(self) -> Iterator[bytes]:
        yield self.text
        raise httpx.ReadTimeout("silent")


def test_a_stream_that_falls_silent_is_lost() -> None:
    start = b'event: started\ndata: {"execId":"x-1"}\n\n'
    output = b'event: stdout\ndata: {"stream":"stdout","data":"a","encoding":"utf-8","cursor":1}\n\n'
    answers = [httpx.Response(200, stream=Silent(start)), httpx.Response(200, stream=Silent(output))]
    client = httpx.Client(transport=httpx.MockTransport(lambda _: answers.pop(0)))
    stream = Hutch("http://hutch.test", "t", http_client=client).sandbox("a").exec_stream("make", resumable=True)
    assert next(stream).data == b"a"
    assert not answers


def test_notebooks_show_results() -> None:
    png = CodeResult({"text/plain": "<Figure>", "image/png": "iVBORw0KGgo="}, main=True)
    assert png._repr_png_() == b"\x89PNG\r\n\x1a\n"
    assert png._repr_mimebundle_(include=["text/plain"]) == {"text/plain": "<Figure>"}
    table = CodeResult({"text/html": "<table>", "text/plain": "t"})
    assert table._repr_html_() == "<table>" and str(table) == "t"
    result = {
        "success": True,
        "contextId": "c",
        "sandboxId": "a",
        "executionCount": 1,
        "exitCode": 0,
        "stdout": "/w==",
        "stderr": "",
        "encoding": "base64",
        "results": [png.to_json()],
        "duration": 1,
        "timedOut": False,
        "truncated": False,
        "fresh": True,
        "ended": False,
    }
    run = RunResult.from_json(result)
    assert run.stdout_bytes == b"\xff" and run.text == "<Figure>" and "image/png" in run._repr_mimebundle_()


#: The smallest part of a PNG that says its size: 40 by 20.
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + (40).to_bytes(4, "big") + (20).to_bytes(4, "big")
SCREEN = {"width": 640, "height": 480, "cursor": {"x": 1, "y": 2}}


def test_a_screen_does_what_computer_use_models_ask_for() -> None:
    server = Server(*[(200, SCREEN)] * 10)
    screen = server.client().sandbox("a").screen
    screen.click(1, 2)
    screen.double_click(1, 2)
    screen.right_click(1, 2)
    screen.move(1, 2)
    screen.drag((1, 2), (3, 4))
    screen.scroll(1, 2, "down")
    screen.type("Grüße")
    screen.press("ctrl+s")
    screen.hold("Right", 0.5)
    done = screen.do({"action": "mouse_move", "coordinate": [0, 0]}, hutch.ScreenAction("wait", duration=1))
    assert [json.loads(r.content)["actions"] for r in server.requests] == [
        [{"action": "left_click", "coordinate": [1, 2]}],
        [{"action": "double_click", "coordinate": [1, 2]}],
        [{"action": "right_click", "coordinate": [1, 2]}],
        [{"action": "mouse_move", "coordinate": [1, 2]}],
        [{"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]}],
        [{"action": "scroll", "coordinate": [1, 2], "scroll_direction": "down", "scroll_amount": 3}],
        [{"action": "type", "text": "Grüße"}],
        [{"action": "key", "text": "ctrl+s"}],
        [{"action": "hold_key", "text": "Right", "duration": 0.5}],
        [{"action": "mouse_move", "coordinate": [0, 0]}, {"action": "wait", "duration": 1}],
    ]
    assert {(r.method, r.url.path) for r in server.requests} == {("POST", "/v1/sandboxes/a/screen/actions")}
    assert (done.width, done.cursor, done.image) == (640, hutch.Point(1, 2), None)


def test_a_click_is_not_repeated() -> None:
    server = Server(httpx.ReadError("gone"))
    with pytest.raises(hutch.UnavailableError):
        server.client().sandbox("a").screen.click(1, 2)
    assert len(server.requests) == 1


def test_notebooks_show_screenshots() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, content=PNG)

    client = httpx.Client(transport=httpx.MockTransport(answer))
    shot = Hutch("http://hutch.test", "t", http_client=client).sandbox("a").screen.screenshot((0, 1, 40, 20))
    assert (shot.png, shot._repr_png_(), shot.width, shot.height) == (PNG, PNG, 40, 20)
    assert asked == ["/v1/sandboxes/a/screen/screenshot?x=0&y=1&width=40&height=20"]
    done = Server((200, {**SCREEN, "image": shot.base64})).client().sandbox("a").screen.do({"action": "screenshot"})
    assert done.image == shot and done._repr_png_() == PNG


def test_a_picture_that_is_not_one() -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"<html>")))
    with pytest.raises(hutch.UnavailableError, match="not a PNG"):
        Hutch("http://hutch.test", "t", http_client=client).sandbox("a").screen.screenshot()


def test_examine_and_verify_audit() -> None:
    finding = {"name": "cgroups", "level": "warning", "detail": "the group cannot be divided", "fix": "start it with systemd-run"}
    verified = {
        "ok": False,
        "lines": 3,
        "first": 1,
        "last": 3,
        "head": "3:ab",
        "notes": [],
        "findings": [{"file": "audit.jsonl", "line": 2, "what": "changed"}],
    }
    server = Server((200, {"parts": [{"part": "native", "runtime": True, "ok": True, "findings": [finding]}]}), (200, verified))
    client = server.client()
    assert client.examine().parts[0].findings == [hutch.Finding(**finding)]
    audit = client.verify_audit(head="2:cd")
    assert not audit.ok and audit.findings == [hutch.AuditFinding("audit.jsonl", 2, "changed")]
    assert [str(r.url) for r in server.requests] == ["http://hutch.test/v1/doctor", "http://hutch.test/v1/audit/verification?head=2%3Acd"]


ANSWER = {
    "success": True,
    "question": "q",
    "code": "x",
    "output": "42\n",
    "error": "",
    "sandboxId": "s",
    "executionTime": 1,
    "language": "python",
    "exitCode": 0,
    "stderr": "",
    "timedOut": False,
    "truncated": False,
    "generationTime": 1,
    "cached": False,
    "repairs": 0,
    "usage": {"inputTokens": 1, "outputTokens": 1},
    "aFieldOfANewerServer": 1,
}


def asked(text: str) -> Hutch:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=text.encode()))
    return Hutch("http://hutch.test", "t", http_client=httpx.Client(transport=transport))


def test_a_question_gives_its_steps_and_its_answer() -> None:
    text = 'event: text\ndata: {"text": "x"}\n\n: ping\n\nevent: later\ndata: {}\n\nevent: result\ndata: ' + json.dumps(ANSWER) + "\n\n"
    with asked(text).ask_stream("q") as stream:
        assert list(stream) == [hutch.AnswerText("x")]
        assert (stream.result.output, stream.result.files) == ("42\n", [])


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, hutch.InvalidError), (401, hutch.AuthenticationError), (403, hutch.DeniedError), (429, hutch.ExhaustedError), (500, hutch.UnavailableError)],
)
def test_a_question_that_is_refused_has_the_kind_of_its_status(status: int, kind: type[hutch.HutchError]) -> None:
    server = Server((status, {"error": "why"}))
    with pytest.raises(kind, match="why") as caught:
        server.client().ask("q")
    assert caught.value.status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize("text", ['event: error\ndata: {"error": "the model broke off"}\n\n', 'event: text\ndata: {"text": "x"}\n\n'])
def test_an_answer_that_breaks_off_is_asked_for_once(text: str) -> None:
    with pytest.raises(hutch.UnavailableError):
        asked(text).ask("q")


WORKED = {
    "sandboxId": "s",
    "agent": "claude",
    "success": True,
    "exitCode": 0,
    "timedOut": False,
    "duration": 1,
    "answer": "done",
    "usage": {"turns": 1, "inputTokens": 1, "outputTokens": 1, "cost": 0.5},
    "diff": "K+kK",
    "encoding": "base64",
    "files": 1,
    "added": 1,
    "removed": 0,
    "aFieldOfANewerServer": 1,
}
BEGUN = 'event: session\ndata: {"sandboxId": "s", "agent": "claude"}\n\n'


def test_an_agent_gives_what_it_does_and_a_difference_whatever_its_bytes() -> None:
    said = 'event: event\ndata: {"type": "said", "text": "x", "aFieldOfANewerServer": 1}\n\n: ping\n\nevent: later\ndata: {}\n\n'
    with asked(BEGUN + said + "event: end\ndata: " + json.dumps(WORKED) + "\n\n").run_agent_stream("https://x.test/r.git", "go") as stream:
        assert [(e.type, e.text) for e in stream] == [("said", "x")]
        assert (stream.sandbox_id, stream.result.diff_bytes, stream.result.diff) == ("s", b"+\xe9\n", "+\ufffd\n")
        assert stream.result and stream.result.usage.cost == 0.5


def test_an_agent_is_asked_for_what_was_given() -> None:
    server = Server((404, problem(404, "not_found")[1]))
    with pytest.raises(hutch.NotFoundError):
        server.client().run_agent("https://x.test/r.git", "go", agent="codex", branch="main", limits=hutch.Limits(memory=512), timeout=60)
    assert json.loads(server.requests[0].content) == {
        "prompt": "go",
        "repository": {"url": "https://x.test/r.git", "branch": "main"},
        "agent": "codex",
        "limits": {"memory": 512},
        "timeout": 60,
    }
    for bad in ("..", "a/b", ""):
        with pytest.raises(hutch.InvalidError):
            server.client().stop_agent(bad)
    assert len(server.requests) == 1


def test_an_archive_is_sent_as_a_form() -> None:
    for archive in (b"\x00\xff", iter([b"\x00", b"\xff"])):
        server = Server((404, problem(404, "not_found")[1]))
        with pytest.raises(hutch.NotFoundError):
            server.client().try_agent(archive, "go", 3, agent="codex")
        request = server.requests[0]
        request.read()
        kind, _, boundary = request.headers["Content-Type"].partition("; boundary=")
        assert (request.url.path, kind) == ("/agents/tries", "multipart/form-data")
        _, first, second, last = request.content.split(b"--" + boundary.encode())
        assert json.loads(first.partition(b"\r\n\r\n")[2]) == {"prompt": "go", "tries": 3, "agent": "codex"}
        assert b'name="archive"' in second
        assert second.partition(b"\r\n\r\n")[2] == b"\x00\xff\r\n"
        assert last == b"--\r\n"


def test_several_tries_are_compared() -> None:
    begun = "".join(f'event: session\ndata: {{"sandboxId": "s{n}", "agent": "claude", "tries": "tries-1", "try": {n}}}\n\n' for n in (1, 2))
    said = 'event: event\ndata: {"type": "said", "text": "x", "try": 2}\n\n'
    all = {"id": "tries-1", "tries": [{"try": 1, "result": WORKED}, {"try": 2, "result": WORKED, "kind": "exhausted", "error": "too long"}]}
    with asked(begun + said + "event: end\ndata: " + json.dumps(all) + "\n\n").follow_tries_stream("tries-1") as stream:
        assert [(e.text, e.try_) for e in stream] == [("x", 2)]
        assert (stream.tries, stream.sessions) == ("tries-1", {1: "s1", 2: "s2"})
        assert [(t.number, t.result.diff_bytes, t.error) for t in stream.result.tries] == [(1, b"+\xe9\n", None), (2, b"+\xe9\n", "too long")]
    with pytest.raises(hutch.UnavailableError, match="follow_tries") as caught:
        asked(begun + said).try_agent("https://x.test/r.git", "go", 2)
    assert caught.value.data == {"tries": "tries-1"}


@pytest.mark.parametrize("text", [BEGUN, BEGUN + 'event: event\ndata: {"type": "said"}\n\n'])
def test_an_agent_whose_connection_is_lost_works_on(text: str) -> None:
    with pytest.raises(hutch.UnavailableError, match="works on: follow it") as caught:
        asked(text).run_agent("https://x.test/r.git", "go")
    assert caught.value.data == {"sandboxId": "s"}
    with pytest.raises(hutch.ExhaustedError, match="why"):
        asked(text + "event: error\ndata: " + json.dumps(problem(429, "exhausted")[1]) + "\n\n").follow_agent("s")


def test_an_empty_setting_is_not_replaced_by_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_URL", "http://hutch.test")
    monkeypatch.setenv("HUTCH_TOKEN", "of-the-administrator")
    with pytest.raises(hutch.InvalidError, match=r"token is an empty text.*HUTCH_TOKEN"):
        Hutch(token="")
    with pytest.raises(hutch.InvalidError, match=r"url is an empty text.*HUTCH_URL"):
        Hutch(url="")
    with pytest.raises(hutch.InvalidError, match="token is an empty text"):
        AsyncHutch(token="")
    assert Hutch()._transport.headers["Authorization"] == "Bearer of-the-administrator"


@pytest.mark.parametrize("token", ["ünï", "secret\n", " secret", "secret\x00", b"secret"])
def test_a_token_that_no_header_can_hold(token: Any) -> None:
    with pytest.raises(hutch.InvalidError, match=r"the token .*: give") as caught:
        Hutch("http://hutch.test", token)
    assert "secret" not in str(caught.value).replace("b'secret'", "")


@pytest.mark.parametrize("url", ["http://hutch.test:99999", "http://hutch.test:port", "http://hutch.test\n", "http://[::1", b"http://hutch.test", 7])
def test_a_url_that_cannot_be_used(url: Any) -> None:
    with pytest.raises(hutch.InvalidError, match="is not the URL of a server: give one"):
        Hutch(url, "t").version()


#: Calls with values that cannot be sent, and what the error says.
UNSENDABLE: list[tuple[Callable[[Hutch, Any], Any], str]] = [
    (lambda h, s: s.exec("make", timeout=float("inf")), "timeout is inf.*give a finite number"),
    (lambda h, s: s.exec("make", timeout=float("nan")), "timeout is nan.*give a finite number"),
    (lambda h, s: h.create(sleep_after=float("inf")), "sleepAfter is inf"),
    (lambda h, s: h.create(limits=hutch.Limits(cpu=float("nan"))), "limits.cpu is nan"),
    (lambda h, s: h.ask("q", timeout=float("inf")), "timeout is inf"),
    (lambda h, s: next(h.watch_stats(float("nan"))), "interval is nan"),
    (lambda h, s: s.list_connections(wait=float("inf")), "wait is inf"),
    (lambda h, s: s.screen.hold("a", float("inf")), r"actions\[0\].duration is inf"),
    (lambda h, s: h.run_agent(b"tar", "go", timeout=float("inf")), "timeout is inf"),
    (lambda h, s: s.exec("echo \ud800"), r"command has the character '\\ud800' at 5, half of a surrogate pair.*remove it"),
    (lambda h, s: s.exec("cat", stdin="\ud800"), "stdin has the character.*or give bytes"),
    (lambda h, s: s.exec("cat", stdin=5), "stdin is of the type int: give text or bytes"),
    (lambda h, s: s.exec("env", env={"A": "\udc80"}), "env.A has the character"),
    (lambda h, s: s.write_file("s.txt", "\ud800"), "content has the character.*or give bytes"),
    (lambda h, s: s.write_file("s.txt", 5), "content is of the type int: give text or bytes"),
    (lambda h, s: s.read_file("\ud800"), "path has the character.*remove it"),
    (lambda h, s: s.read_file(b"s.txt"), "path is bytes: give text"),
    (lambda h, s: s.write_input("p-1", "\ud800"), "data has the character"),
    (lambda h, s: s.write_input("p-1", 5), "data is of the type int"),
    (lambda h, s: h.ask("q", files={"a": "\ud800"}), "the file 'a' has the character"),
    (lambda h, s: h.run_agent(b"tar", "\ud800"), "prompt has the character"),
    (lambda h, s: s.exec("env", env={"A": 1}), "the variable 'A' in env is the number 1: give text, such as '1'"),
    (lambda h, s: s.exec("env", env={"A": True}), "the variable 'A' in env is the truth value True: give text, such as 'True'"),
    (lambda h, s: s.update(env={"B": 1.5}), "the variable 'B' in env is the number 1.5"),
    (lambda h, s: h.create(labels={"team": 7}), "the label 'team' in labels is the number 7"),
    (lambda h, s: s.exec("env", env={1: "A"}), "env has the name 1, which is of the type int: give text"),
    (lambda h, s: s.exec(b"make"), "command is bytes.*decode it"),
    (lambda h, s: s.exec("make", cwd=Path("/tmp")), "cwd is of the type PosixPath"),
    (lambda h, s: h.set_secret("A", b"secret"), "value is bytes"),
    (lambda h, s: h.get(5), "5 is not an id, but of the type int"),
]


@pytest.mark.parametrize(("call", "message"), UNSENDABLE, ids=[m for _, m in UNSENDABLE])
def test_values_that_cannot_be_sent_reach_no_server(call: Callable[[Hutch, Any], Any], message: str) -> None:
    server = Server()
    client = server.client()
    with pytest.raises(hutch.InvalidError, match=message):
        call(client, client.sandbox("a"))
    assert not server.requests


def test_text_of_any_script_and_names_of_any_bytes_are_sent() -> None:
    server = Server((404, problem(404, "not_found")[1]), (404, problem(404, "not_found")[1]))
    sandbox = server.client().sandbox("a")
    for call in (lambda: sandbox.exec("echo 🦫", env={"A": "ü"}), lambda: sandbox.read_file("\udcff")):
        with pytest.raises(hutch.NotFoundError):
            call()
    assert json.loads(server.requests[0].content) == {"command": "echo 🦫", "env": {"A": "ü"}}
    assert server.requests[1].url.raw_path.endswith(b"path=%FF")


def test_a_file_that_is_not_text_is_for_read_bytes() -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"ELF\xff")))
    with pytest.raises(hutch.InvalidError, match=r"/bin/ls is not UTF-8 text, as its byte 3 is 0xff: read it with read_bytes\(\)") as caught:
        Hutch("http://hutch.test", "t", http_client=client).sandbox("a").read_file("/bin/ls")
    assert caught.value.data == {"path": "/bin/ls"}


@contextlib.contextmanager
def listening(answer: bytes) -> Iterator[int]:
    """A server that gives the same answer to every request."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


OF_GO = b"Client sent an HTTP request to an HTTPS server.\n"


@pytest.mark.parametrize(
    ("scheme", "answer", "right"),
    [
        ("https", b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request", "http"),
        ("http", b"HTTP/1.0 400 Bad Request\r\n\r\n" + OF_GO, "https"),
        ("http", b"HTTP/1.0 400 Bad Request\r\n\r\n<center>The plain HTTP request was sent to HTTPS port</center>", "https"),
        ("http", b"\x15\x03\x01\x00\x02\x02\x46", "https"),
    ],
)
def test_a_url_with_the_wrong_scheme_is_corrected(scheme: str, answer: bytes, right: str) -> None:
    with listening(answer) as port:
        wanted = f"at {scheme}://127.0.0.1:{port} .*speaks? {right.upper()}[,:] give the URL {right}://127.0.0.1:{port}$"
        with Hutch(f"{scheme}://127.0.0.1:{port}", "t") as client:
            with pytest.raises(hutch.UnavailableError, match=wanted):
                client.list_sandboxes()
            if not answer.startswith(b"\x15"):
                with pytest.raises(hutch.UnavailableError, match=wanted):
                    next(iter(client.sandbox("a").screen.view()))


def test_a_certificate_that_is_not_trusted() -> None:
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1000)"
    server = Server(*[httpx.ConnectError(text)] * 3)
    with pytest.raises(hutch.UnavailableError, match=r"is not trusted \(self-signed certificate\): check the URL; .*SSL_CERT_FILE"):
        server.client().version()
