"""What commands and code gave."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ._wire import bytes_of, time_of

Stream = Literal["stdout", "stderr"]


@dataclass
class Output:
    """A piece of output, in the order in which it was read. ``data`` is exact."""

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
    #: This is the value of the last expression; else the code displayed it.
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
        """What a figure shows, as data: ``type``, ``title``, ``elements``."""
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
    #: The interpreter is gone; the next run gets a fresh one.
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
        """What a notebook shows of a run: its main result, or what it printed."""
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
    """Code waits for input that is not there: it reached the end of ``stdin``."""

    prompt: str
    password: bool = False


#: What a stream of a run gives.
CodeEvent = Output | CodeResult | CodeError | InputRequest

__all__ = ["CodeError", "CodeEvent", "CodeResult", "ExecResult", "InputRequest", "Logs", "Output", "RunResult", "Stream"]
