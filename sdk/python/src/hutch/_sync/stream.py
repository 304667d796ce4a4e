# Written by tools/unasync.py from src/hutch/_async: change that, and run it.
"""Streams: output of commands and code, logs, and changes of files, as they come."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._errors import HutchError, UnavailableError, error_of
from .._models import (
    AgentEvent,
    AnswerOutput,
    BuildEvent,
    BuildInfo,
    FileEvent,
    ImageInfo,
    PortEvent,
    ProcessInfo,
    Program,
    Repair,
    StatsReport,
    TerminalSize,
    TimelineEntry,
)
from .._results import AgentResult, AgentTries, Answer, AnswerEvent, AnswerText, CodeError, CodeEvent, CodeResult, ExecResult, InputRequest, Output, RunResult
from .._wire import Event, at, content_of, json_bytes, query_of
from ._platform import sleep
from .transport import SILENCE, Events, Request, Transport

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._platform import Socket

T = TypeVar("T")
R = TypeVar("R")

#: How long to try to reconnect: as long as the server keeps the command or run.
GRACE = 60.0
LONGEST_PAUSE = 2.0


class Stream(Generic[T]):
    """Items as they come. The stream connects when the first item is read. Leave it with `close`, or use it as a context manager."""

    def __init__(self, transport: Transport, request: Request) -> None:
        request.patience = SILENCE
        self._transport = transport
        self._request = request
        self._events: Events | None = None
        self._connected = False
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._ended:
            event = self._next()
            if event.name == "error":
                self._ended = True
                self.close()
                problem = event.json()
                raise error_of(problem.get("status", 500), problem)
            item = self._take(event)
            if self._ended:
                self.close()
            if item is not None:
                return item
        raise StopIteration

    def _take(self, event: Event) -> T | None:
        """Makes an item from an event, or records the end in self._ended."""
        raise NotImplementedError

    def _again(self) -> Request | None:
        """The request that continues the stream after its connection was lost, or None if that is not possible."""
        return None

    def _next(self) -> Event:
        pause, lost = 0.05, 0.0
        while True:
            try:
                if self._events is None:
                    self._events = self._transport.events(self._request)
                    self._connected = True
                return self._events.next()
            except UnavailableError:
                self._disconnect()
                again = self._again() if self._connected else None
                lost = lost or monotonic()
                if again is None or monotonic() - lost > GRACE:
                    raise
                self._request = again
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _disconnect(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def close(self) -> None:
        """Leaves the stream. Its command or run ends, unless it is resumable or a background process."""
        self._ended = True
        self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ResultStream(Stream[T], Generic[T, R]):
    """A stream that ends with a result."""

    _unended = "the stream has not ended"

    def __init__(self, transport: Transport, request: Request) -> None:
        super().__init__(transport, request)
        self._result: R | None = None

    @property
    def result(self) -> R:
        """The result. Before the end of the stream, it raises an error."""
        if self._result is None:
            raise HutchError(self._unended)
        return self._result

    def wait(self) -> R:
        """Reads to the end, and returns the result."""
        for _ in self:
            pass
        return self.result


class ExecStream(ResultStream[Output, ExecResult]):
    """The output of a command as it comes; then `result` says how it ended. Leaving the stream kills a command that is not resumable."""

    _unended = "the command has not ended: read its output to the end first, or call wait()"

    def __init__(self, transport: Transport, sandbox: str, request: Request, exec_id: str | None = None, cursor: int = 0) -> None:
        super().__init__(transport, request)
        self._sandbox = sandbox
        #: The id of a resumable command, once the stream has begun.
        self.exec_id = exec_id
        #: Where the output continues: for `resume_exec`.
        self.cursor = cursor

    def _take(self, event: Event) -> Output | None:
        if event.name in ("stdout", "stderr"):
            output = Output.from_json(event.json())
            self.cursor = output.cursor
            return output
        if event.name == "started":
            self.exec_id = event.json()["execId"]
        elif event.name == "exit":
            self._result, self._ended = ExecResult.from_json(event.json()), True
        return None

    def _again(self) -> Request | None:
        if self.exec_id is None:
            return None
        path = at("/v1/sandboxes/{id}/exec/{exec}", id=self._sandbox, exec=self.exec_id)
        return Request("GET", path + query_of(cursor=str(self.cursor)), patience=SILENCE)

    def cancel(self) -> None:
        """Kills the command with everything it started."""
        if self.exec_id is not None and self._result is None:
            path = at("/v1/sandboxes/{id}/exec/{exec}", id=self._sandbox, exec=self.exec_id)
            self._transport.call(Request("DELETE", path))
        self.close()


class CodeStream(ResultStream[CodeEvent, RunResult]):
    """Output and results of code as they come; then `result` says how it ended. Leaving the stream interrupts the code."""

    _unended = "the code has not ended: read its events to the end first, or call wait()"

    def _take(self, event: Event) -> CodeEvent | None:
        if event.name in ("stdout", "stderr"):
            return Output.from_json(event.json())
        if event.name == "result":
            return CodeResult.from_json(event.json())
        if event.name == "exception":
            return CodeError.from_json(event.json())
        if event.name == "input":
            v = event.json()
            return InputRequest(v.get("prompt", ""), v.get("password", False))
        if event.name == "end":
            self._result, self._ended = RunResult.from_json(event.json()), True
        return None


class AnswerStream(ResultStream[AnswerEvent, Answer]):
    """The steps to an answer as they happen; then `result` is the answer. Leaving the stream ends the question and its program."""

    _unended = "the question has no answer yet: read its events to the end first, or call wait()"

    def _take(self, event: Event) -> AnswerEvent | None:
        if event.name == "text":
            return AnswerText(event.json().get("text", ""))
        if event.name == "program":
            return Program.from_json(event.json()["program"])
        if event.name == "output":
            return AnswerOutput.from_json(event.json()["output"])
        if event.name == "repair":
            return Repair.from_json(event.json()["repair"])
        if event.name == "result":
            self._result, self._ended = Answer.from_json(event.json()), True
        return None


class AgentStream(ResultStream[AgentEvent, AgentResult]):
    """The events of a coding agent as they happen, and then its `result`. The agent continues when the stream is left."""

    _unended = "the agent has not ended: read its events to the end first, or call wait()"

    def __init__(self, transport: Transport, request: Request) -> None:
        super().__init__(transport, request)
        #: The session, by the id of its sandbox, once the stream has begun. `follow_agent` and `stop_agent` need it.
        self.sandbox_id: str | None = None

    def _take(self, event: Event) -> AgentEvent | None:
        if event.name == "session":
            self.sandbox_id = event.json()["sandboxId"]
        elif event.name == "event":
            return AgentEvent.from_json(event.json())
        elif event.name == "end":
            self._result, self._ended = AgentResult.from_json(event.json()), True
        return None

    def _next(self) -> Event:
        try:
            return super()._next()
        except UnavailableError as e:
            if self.sandbox_id is None:
                raise
            message = f"the connection is lost, and the agent of {self.sandbox_id} works on: follow it with follow_agent"
            raise UnavailableError(message, data={"sandboxId": self.sandbox_id}) from e


class TriesStream(ResultStream[AgentEvent, AgentTries]):
    """The events of several tries as they happen, and then the `result` of each. The agents continue when the stream is left."""

    _unended = "the agents have not ended: read their events to the end first, or call wait()"

    def __init__(self, transport: Transport, request: Request) -> None:
        super().__init__(transport, request)
        #: The id of the tries, once the stream has begun. `follow_tries` needs it.
        self.tries: str | None = None
        #: The sessions, by the number of the try.
        self.sessions: dict[int, str] = {}

    def _take(self, event: Event) -> AgentEvent | None:
        if event.name == "session":
            session = event.json()
            self.tries, self.sessions[session["try"]] = session["tries"], session["sandboxId"]
        elif event.name == "event":
            return AgentEvent.from_json(event.json())
        elif event.name == "end":
            self._result, self._ended = AgentTries.from_json(event.json()), True
        return None

    def _next(self) -> Event:
        try:
            return super()._next()
        except UnavailableError as e:
            if self.tries is None:
                raise
            message = f"the connection is lost, and the agents of {self.tries} work on: follow them with follow_tries"
            raise UnavailableError(message, data={"tries": self.tries}) from e


#: Where an agent's files come from: the URL of a repository, or an archive with them.
Source = str | bytes | Iterable[bytes]


def agent_request(path: str, source: Source, clone: dict[str, Any], body: dict[str, Any]) -> Request:
    """The request that begins a session, or several."""
    if isinstance(source, str):
        return Request("POST", path, body | {"repository": {"url": source, **clone}})
    if clone:
        body = body | {"repository": clone}  # the server reports what is wrong
    return _form_request(path, body, "archive", source)


def build_request(context: bytes | Iterable[bytes] | None, body: dict[str, Any]) -> Request:
    """The request that builds an image."""
    return _form_request("/v1/images/build", body, "context", context)


def _form_request(path: str, body: dict[str, Any], part: str, archive: bytes | Iterable[bytes] | None) -> Request:
    """A request with a form of two parts: JSON, and an archive under the name `part`, which can be missing."""
    boundary = secrets.token_hex(16)
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return Request("POST", path, content=_form(boundary, json_bytes(body), part, archive), headers=headers)


def _form(boundary: str, body: bytes, part: str, archive: bytes | Iterable[bytes] | None) -> Iterator[bytes]:
    yield f'--{boundary}\r\nContent-Disposition: form-data; name="request"\r\n\r\n'.encode() + body + b"\r\n"
    if archive is not None:
        yield f'--{boundary}\r\nContent-Disposition: form-data; name="{part}"; filename="{part}.tar"\r\n\r\n'.encode()
        if isinstance(archive, bytes):
            yield archive
        else:
            for piece in archive:
                yield piece
        yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()


class BuildStream(ResultStream[BuildEvent, ImageInfo]):
    """The steps of a build, with their output, as they happen; then `result` is the image. Leaving the stream ends the build."""

    _unended = "the build has not ended: read its events to the end first, or call wait()"

    def __init__(self, transport: Transport, request: Request, detached: bool) -> None:
        super().__init__(transport, request)
        self._detached = detached

    def _take(self, event: Event) -> BuildEvent | None:
        if event.name == "progress":
            return BuildEvent.from_json(event.json())
        if event.name == "end":
            self._result, self._ended = ImageInfo.from_json(event.json()), True
        return None

    def _next(self) -> Event:
        try:
            return super()._next()
        except UnavailableError as e:
            if not self._connected:
                raise
            if self._detached:
                what = "the connection is lost: if all of the context had arrived, the build continues; list_builds has its record, and follow_build its output"
            else:
                what = "the connection is lost, and the build with it: start it again, and finished steps are not repeated"
            raise UnavailableError(what) from e


class BuildLogStream(ResultStream[BuildEvent, BuildInfo]):
    """The output of a build, from its beginning until it has ended; then `result` is its record. Leaving the stream does not end the build."""

    _unended = "the build has not ended: read its events to the end first, or call wait()"

    def _take(self, event: Event) -> BuildEvent | None:
        if event.name == "progress":
            return BuildEvent.from_json(event.json())
        if event.name == "end":
            self._result, self._ended = BuildInfo.from_json(event.json()), True
        return None


class LogStream(Stream[Output]):
    """The output of a background process, followed until the process has ended. A lost connection is made again."""

    def __init__(self, transport: Transport, path: str, cursor: int, query: dict[str, Any]) -> None:
        self._path, self._query, self.cursor = path, query, cursor
        super().__init__(transport, self._make())

    def _make(self) -> Request:
        return Request("GET", self._path + query_of(cursor=str(self.cursor), follow=True, **self._query), patience=SILENCE)

    def _again(self) -> Request | None:
        return self._make()

    def _take(self, event: Event) -> Output | None:
        if event.name in ("stdout", "stderr"):
            output = Output.from_json(event.json())
            self.cursor = output.cursor
            return output
        if event.name == "end":
            self.cursor, self._ended = event.json()["cursor"], True
        return None


class FileWatch(Stream[FileEvent]):
    """Changes to files as they happen. The first event has the type `ready`: nothing after it is missed."""

    def _take(self, event: Event) -> FileEvent | None:
        if event.name == "change":
            return FileEvent.from_json(event.json())
        self._ended = event.name == "end"
        return None


class PortWatch(Stream[PortEvent]):
    """Servers that begin to listen or stop."""

    def _take(self, event: Event) -> PortEvent | None:
        if event.name == "port":
            return PortEvent.from_json(event.json())
        self._ended = event.name == "end"
        return None


class TimelineWatch(Stream[TimelineEntry]):
    """The timeline of a sandbox: past entries, and then new ones. A running entry comes again, with the same id, when it has ended."""

    def _take(self, event: Event) -> TimelineEntry | None:
        if event.name == "entry":
            return TimelineEntry.from_json(event.json())
        self._ended = event.name == "end"
        return None


class StatsWatch(Stream[StatsReport]):
    """The usage of sandboxes. A report with `full` replaces the earlier ones; others have only the changes."""

    def _take(self, event: Event) -> StatsReport | None:
        if event.name == "stats":
            return StatsReport.from_json(event.json())
        self._ended = event.name == "end"
        return None


class Terminal:
    """A terminal: a background process that is watched and written to. Iterate over it for its output, in bytes."""

    def __init__(self, transport: Transport, sandbox: str, process: ProcessInfo) -> None:
        self._transport = transport
        self._path = at("/v1/sandboxes/{id}/processes/{process}", id=sandbox, process=process.process_id)
        self.process_id = process.process_id
        self._socket: Socket | None = None
        #: The record of the process, once it has ended.
        self.exit: ProcessInfo | None = None
        #: Where the output continues, in bytes.
        self.cursor = 0

    def _connection(self) -> Socket:
        if self._socket is None:
            self._socket = self._transport.socket(f"{self._path}/terminal?cursor={self.cursor}")
        return self._socket

    def send(self, data: str | bytes) -> None:
        """Sends input. Ctrl-C is ``"\\x03"``, Ctrl-D is ``"\\x04"``."""
        socket = self._connection()
        socket.send(content_of("data", data))

    def resize(self, columns: int, rows: int) -> None:
        socket = self._connection()
        socket.send(json.dumps(TerminalSize(columns, rows).to_json()))

    def __iter__(self) -> Iterator[bytes]:
        from websockets.exceptions import ConnectionClosed

        socket = self._connection()
        while self.exit is None:
            try:
                message = socket.recv()
            except ConnectionClosed as e:
                raise UnavailableError("the connection with the terminal is lost: iterate again to continue") from e
            if isinstance(message, bytes):
                self.cursor += len(message)
                yield message
                continue
            note = json.loads(message)
            if note.get("error"):
                raise error_of(note["error"].get("status", 500), note["error"])
            self.cursor = note.get("cursor", self.cursor)
            if note.get("exit"):
                self.exit = ProcessInfo.from_json(note["exit"])
        self.close()

    def read(self) -> bytes:
        """All output until the terminal ends."""
        pieces = [piece for piece in self]
        return b"".join(pieces)

    def kill(self) -> None:
        """Ends the terminal and everything that runs in it."""
        self._transport.call(Request("POST", f"{self._path}/signal", body={"signal": 9}))

    def close(self) -> None:
        """Leaves the terminal. Its programs continue: see `kill`."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
