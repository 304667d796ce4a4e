"""The results of commands and code."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ._errors import UnavailableError
from ._models import AgentUsage, AnswerOutput, Consumption, ModelUsage, Point, Program, Repair
from ._wire import bytes_of, time_of

Stream = Literal["stdout", "stderr"]


@dataclass
class Output:
    """A piece of output, in the order in which it was read. ``data`` has the exact bytes."""

    stream: Stream
    data: bytes
    #: Where the output continues after this piece, in bytes of both streams together.
    cursor: int
    #: Bytes before this piece that are no longer kept.
    lost: int = 0
    #: A secret was replaced here.
    redacted: bool = False
    #: When it was read from the process, if that was asked for.
    time: datetime | None = None

    @property
    def text(self) -> str:
        """The data as text; bytes that are not UTF-8 are replaced. A character can be split over two pieces."""
        return self.data.decode("utf-8", "replace")

    @classmethod
    def from_json(cls, v: Any) -> Output:
        return cls(
            v["stream"],
            bytes_of(v["data"], v["encoding"]),
            v["cursor"],
            v.get("lost", 0),
            v.get("redacted", False),
            time_of(v["time"]) if v.get("time") else None,
        )


@dataclass
class Logs:
    """Output of a background process, and the cursor from which it continues."""

    output: list[Output]
    cursor: int

    @property
    def text(self) -> str:
        return b"".join(o.data for o in self.output).decode("utf-8", "replace")

    @classmethod
    def from_json(cls, v: Any) -> Logs:
        return cls([Output.from_json(o) for o in v["output"]], v["cursor"])


@dataclass
class _Printed:
    stdout_bytes: bytes
    stderr_bytes: bytes

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced: see ``stdout_bytes``."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return self.stderr_bytes.decode("utf-8", "replace")


@dataclass
class ExecResult(_Printed):
    """How a command ended. An exit code that is not 0 is a result, not an error."""

    success: bool
    exit_code: int
    command: str
    #: In milliseconds.
    duration: int
    timestamp: datetime
    timed_out: bool
    #: Output was left out in the middle: it was longer than ``max_output``.
    truncated: bool
    sandbox_id: str
    compile_error: bool = False
    #: The limit of the sandbox that ended the command, such as ``memory``.
    limit_exceeded: str | None = None
    #: Rules that would have allowed what the sandbox's network denied meanwhile.
    denied: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.success

    @classmethod
    def from_json(cls, v: Any) -> ExecResult:
        return cls(
            bytes_of(v["stdout"], v["encoding"]),
            bytes_of(v["stderr"], v["encoding"]),
            v["success"],
            v["exitCode"],
            v["command"],
            v["duration"],
            time_of(v["timestamp"]),
            v["timedOut"],
            v["truncated"],
            v["sandboxId"],
            v.get("compileError", False),
            v.get("limitExceeded"),
            v.get("denied") or [],
        )


@dataclass
class CodeError:
    """An error that the code raised, or had in its syntax."""

    name: str
    message: str
    traceback: str

    @classmethod
    def from_json(cls, v: Any) -> CodeError:
        return cls(v["name"], v["message"], v["traceback"])

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "message": self.message, "traceback": self.traceback}


_binary = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


@dataclass
class CodeResult:
    """A value that code showed, in every form that it has, by MIME type. Notebooks show it."""

    data: dict[str, Any]
    #: True for the value of the last expression; other values were displayed by the code.
    main: bool = False

    @property
    def text(self) -> str | None:
        return self.data.get("text/plain")

    @property
    def html(self) -> str | None:
        return self.data.get("text/html")

    @property
    def markdown(self) -> str | None:
        return self.data.get("text/markdown")

    @property
    def svg(self) -> str | None:
        return self.data.get("image/svg+xml")

    @property
    def latex(self) -> str | None:
        return self.data.get("text/latex")

    @property
    def json(self) -> Any:
        return self.data.get("application/json")

    @property
    def png(self) -> bytes | None:
        return self._bytes("image/png")

    @property
    def jpeg(self) -> bytes | None:
        return self._bytes("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        return self._bytes("application/pdf")

    @property
    def chart(self) -> dict[str, Any] | None:
        """A figure as data: ``type``, ``title``, ``elements``."""
        return self.data.get("application/vnd.hutch.chart+json")

    @property
    def table(self) -> dict[str, Any] | None:
        """The first rows of a table: ``columns``, ``rows``, ``total``."""
        return self.data.get("application/vnd.hutch.table+json")

    def _bytes(self, mime: str) -> bytes | None:
        value = self.data.get(mime)
        return base64.b64decode(value) if isinstance(value, str) else None

    def __str__(self) -> str:
        return self.text or f"<{', '.join(self.data)}>"

    def __repr__(self) -> str:
        return f"CodeResult({self})"

    def _repr_mimebundle_(self, include: Sequence[str] | None = None, exclude: Sequence[str] | None = None) -> dict[str, Any]:
        return {
            mime: base64.b64decode(value) if mime in _binary and isinstance(value, str) else value
            for mime, value in self.data.items()
            if (not include or mime in include) and (not exclude or mime not in exclude)
        }

    def _repr_html_(self) -> str | None:
        return self.html

    def _repr_png_(self) -> bytes | None:
        return self.png

    def _repr_svg_(self) -> str | None:
        return self.svg

    def _repr_markdown_(self) -> str | None:
        return self.markdown

    @classmethod
    def from_json(cls, v: Any) -> CodeResult:
        return cls(v["data"], v.get("main", False))

    def to_json(self) -> dict[str, Any]:
        return {"main": self.main, "data": self.data}


@dataclass
class RunResult(_Printed):
    """How a run of code ended. An error that the code raised is part of it."""

    success: bool
    context_id: str
    sandbox_id: str
    execution_count: int
    exit_code: int
    results: list[CodeResult]
    error: CodeError | None
    #: In milliseconds.
    duration: int
    timed_out: bool
    truncated: bool
    #: The run was the first of its interpreter.
    fresh: bool
    #: The interpreter has ended; the next run gets a fresh one.
    ended: bool
    denied: list[str] = field(default_factory=list)
    limit_exceeded: str | None = None

    @property
    def text(self) -> str | None:
        """The value of the last expression, as text."""
        main = self.main
        return main.text if main else None

    @property
    def main(self) -> CodeResult | None:
        """The value of the last expression."""
        return next((r for r in self.results if r.main), None)

    def __bool__(self) -> bool:
        return self.success

    def _repr_mimebundle_(self, include: Sequence[str] | None = None, exclude: Sequence[str] | None = None) -> dict[str, Any]:
        """A run as a notebook shows it: its main result, or its output."""
        shown = self.main or (self.results[-1] if self.results else None)
        if shown is not None:
            return shown._repr_mimebundle_(include, exclude)
        return {"text/plain": self.error.traceback if self.error else self.stdout + self.stderr}

    @classmethod
    def from_json(cls, v: Any) -> RunResult:
        return cls(
            bytes_of(v["stdout"], v["encoding"]),
            bytes_of(v["stderr"], v["encoding"]),
            v["success"],
            v["contextId"],
            v["sandboxId"],
            v["executionCount"],
            v["exitCode"],
            [CodeResult.from_json(r) for r in v["results"]],
            CodeError.from_json(v["error"]) if v.get("error") else None,
            v["duration"],
            v["timedOut"],
            v["truncated"],
            v["fresh"],
            v["ended"],
            v.get("denied") or [],
            v.get("limitExceeded"),
        )


@dataclass
class InputRequest:
    """Code waits for input, because it has read all of ``stdin``."""

    prompt: str
    password: bool = False


#: An item of the stream of a run.
CodeEvent = Output | CodeResult | CodeError | InputRequest

__all__ = [
    "CodeError",
    "CodeEvent",
    "CodeResult",
    "ControlResult",
    "ExecResult",
    "InputRequest",
    "Logs",
    "Output",
    "Region",
    "RunResult",
    "Screenshot",
    "Stream",
]


@dataclass
class AnswerFile:
    """A file that the program of a question wrote or changed in its working folder."""

    path: str
    #: Its content, which is empty if it was left out.
    data: bytes
    size: int = 0
    #: The content was left out, because the answer would be over its limits.
    omitted: bool = False

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @classmethod
    def from_json(cls, v: Any) -> AnswerFile:
        return cls(v["path"], bytes_of(v["content"], v.get("encoding", "utf-8")), v.get("size", 0), v.get("omitted", False))


@dataclass
class Answer:
    """Output of the program of a question."""

    #: The program ended with 0, within its time and limits.
    success: bool
    question: str
    #: The program that ran last.
    code: str
    #: Standard output, up to 1 MiB.
    output: str
    #: What went wrong; empty with success.
    error: str
    #: The sandbox in which the program ran. It is destroyed, unless the question had a conversation.
    sandbox_id: str
    #: Run time of the last program, in milliseconds.
    execution_time: int
    language: str
    exit_code: int
    stderr: str
    timed_out: bool
    #: The program wrote too much, and was killed.
    truncated: bool
    #: How long the model took, with all repairs, in milliseconds.
    generation_time: int
    #: The program comes from the cache of an earlier question.
    cached: bool
    #: How often the model repaired the program.
    repairs: int
    usage: ModelUsage
    model: str | None = None
    conversation_id: str | None = None
    files: list[AnswerFile] = field(default_factory=list)
    #: With `measure`: the usage of the sandbox.
    resources: Consumption | None = None

    @classmethod
    def from_json(cls, v: Any) -> Answer:
        return cls(
            v["success"],
            v["question"],
            v["code"],
            v["output"],
            v["error"],
            v["sandboxId"],
            v["executionTime"],
            v["language"],
            v["exitCode"],
            v["stderr"],
            v["timedOut"],
            v["truncated"],
            v["generationTime"],
            v["cached"],
            v["repairs"],
            ModelUsage.from_json(v["usage"]),
            v.get("model"),
            v.get("conversationId"),
            [AnswerFile.from_json(f) for f in v.get("files") or []],
            Consumption.from_json(v["resources"]) if v.get("resources") else None,
        )


@dataclass
class AnswerText:
    """A piece of the model's answer, as it is written."""

    text: str


#: One step on the way to an answer.
AnswerEvent = AnswerText | Program | AnswerOutput | Repair


class Region(NamedTuple):
    """A part of the screen, in pixels from its upper left corner."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Screenshot:
    """A picture of the screen, or of a part of it. Notebooks show it."""

    png: bytes = field(repr=False)
    width: int
    height: int

    @property
    def base64(self) -> str:
        """The PNG in base64, as models expect it."""
        return base64.b64encode(self.png).decode()

    def _repr_png_(self) -> bytes:
        return self.png

    @classmethod
    def of(cls, png: bytes) -> Screenshot:
        if len(png) < 24 or not png.startswith(b"\x89PNG"):
            raise UnavailableError("the picture of the screen is not a PNG: check that the URL is that of a Hutch server")
        return cls(png, int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big"))


@dataclass
class ControlResult:
    """The screen after actions."""

    width: int
    height: int
    cursor: Point
    #: The picture of the last ``screenshot`` or ``zoom`` among the actions.
    image: Screenshot | None = None

    def _repr_png_(self) -> bytes | None:
        return self.image.png if self.image else None

    @classmethod
    def from_json(cls, v: Any) -> ControlResult:
        image = Screenshot.of(base64.b64decode(v["image"])) if v.get("image") else None
        return cls(v["width"], v["height"], Point.from_json(v["cursor"]), image)


@dataclass
class AgentResult:
    """The result of a prompt of a coding agent. With `detach`, it has only the session and the agent."""

    #: The session.
    sandbox_id: str
    agent: str
    #: The agent ended by itself and saw no error.
    success: bool
    exit_code: int
    timed_out: bool
    #: In milliseconds.
    duration: int
    #: The last message of the agent.
    answer: str
    usage: AgentUsage
    #: Everything that has changed since the session began, as `git diff --binary` prints it.
    diff_bytes: bytes
    #: How many files changed.
    files: int
    #: Lines.
    added: int
    removed: int

    @property
    def diff(self) -> str:
        """The difference as text; bytes that are not UTF-8 are replaced: see ``diff_bytes``."""
        return self.diff_bytes.decode("utf-8", "replace")

    def __bool__(self) -> bool:
        return self.success

    @classmethod
    def from_json(cls, v: Any) -> AgentResult:
        return cls(
            v["sandboxId"],
            v["agent"],
            v["success"],
            v["exitCode"],
            v["timedOut"],
            v["duration"],
            v["answer"],
            AgentUsage.from_json(v["usage"]),
            bytes_of(v["diff"], v.get("encoding", "utf-8")),
            v["files"],
            v["added"],
            v["removed"],
        )


@dataclass
class AgentTry:
    """One of several tries."""

    #: Its number, from 1. The field is `try` in the API.
    number: int
    result: AgentResult
    #: Kind and text of the error that prevented a result. The session can still exist.
    kind: str | None = None
    error: str | None = None

    @classmethod
    def from_json(cls, v: Any) -> AgentTry:
        return cls(v["try"], AgentResult.from_json(v["result"]), v.get("kind"), v.get("error"))


@dataclass
class AgentTries:
    """The results of several tries."""

    #: For `follow_tries`.
    id: str
    tries: list[AgentTry]

    @classmethod
    def from_json(cls, v: Any) -> AgentTries:
        return cls(v["id"], [AgentTry.from_json(t) for t in v["tries"]])
