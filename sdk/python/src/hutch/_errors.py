"""Errors. Each has the kind that it had on the server, and a message that says what happened, why, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._results import ExecResult, RunResult


class HutchError(Exception):
    """The error of a failed call."""

    kind = "internal"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        data: dict[str, Any] | None = None,
        result: ExecResult | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The HTTP status, or None for an error that never reached the server.
        self.status = status
        #: The subject of the error, such as ``sandboxId`` or ``path``.
        self.data = data or {}
        #: The output of a command until the error ended it.
        self.result = result


class InvalidError(HutchError):
    """The request is wrong, and would fail again."""

    kind = "invalid"


class DeniedError(HutchError):
    """The request is understood, and not allowed."""

    kind = "denied"


class AuthenticationError(DeniedError):
    """The token is missing, wrong or expired."""


class NotFoundError(HutchError):
    """The thing does not exist, or belongs to another owner."""

    kind = "not_found"


class ConflictError(HutchError):
    """The request does not fit the present state."""

    kind = "conflict"


class ExhaustedError(HutchError):
    """A limit is reached; the message names it."""

    kind = "exhausted"

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same request can succeed, if the server knows."""
        value = self.data.get("retryAfter")
        return float(value) if isinstance(value, (int, float)) else None


class UnsupportedError(HutchError):
    """This runtime or image cannot do it."""

    kind = "unsupported"


class UnavailableError(HutchError):
    """The server cannot do it now, or does not answer. The same request can succeed later."""

    kind = "unavailable"


class HutchTimeoutError(HutchError):
    """The time limit ran out."""

    kind = "timeout"


class InternalError(HutchError):
    """A fault of the server, whose log has the cause."""


def _denied(rules: list[str]) -> str:
    """Names what the network denied: a program reports only that it cannot reach a name or an address."""
    if not rules:
        return ""
    return f" (the sandbox's network denied {', '.join(rules)}: sandbox.allow({', '.join(map(repr, rules))}) allows it)"


class CommandError(HutchError):
    """A command with ``check=True`` that did not succeed. ``result`` has its output."""

    kind = "command"
    result: ExecResult

    def __init__(self, result: ExecResult) -> None:
        how = "ran out of time" if result.timed_out else f"ended with exit code {result.exit_code}"
        last = (result.stderr or result.stdout).strip().splitlines()[-1:]
        words = f": {last[0][:200]}" if last else ""
        super().__init__(f"the command {how}{words}{_denied(result.denied)}", result=result)


class CodeExecutionError(HutchError):
    """Code with ``check=True`` that raised an error. ``run`` has its output and results."""

    kind = "code"

    def __init__(self, run: RunResult) -> None:
        e = run.error
        what = f"{e.name}: {e.message}" if e else f"the code ended with exit code {run.exit_code}"
        super().__init__(what + _denied(run.denied))
        self.run = run


# Tracebacks show the names that programs import and catch.
for _class in [c for c in list(globals().values()) if isinstance(c, type) and issubclass(c, HutchError)]:
    _class.__module__ = "hutch"

_kinds: dict[str, type[HutchError]] = {
    c.kind: c for c in (InvalidError, DeniedError, NotFoundError, ConflictError, ExhaustedError, UnsupportedError, UnavailableError, HutchTimeoutError)
}
_statuses: dict[int, type[HutchError]] = {
    400: InvalidError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    405: InvalidError,
    409: ConflictError,
    413: InvalidError,
    422: UnsupportedError,
    429: ExhaustedError,
    502: UnavailableError,
    503: UnavailableError,
    504: HutchTimeoutError,
}


def error_of(status: int, problem: Any) -> HutchError:
    """The error that problem details describe. An answer in another form comes from a program in between, such as a proxy. Answers to
    questions have the field `error` instead; with the status 500, the fault is that of the model or its key."""
    if isinstance(problem, dict) and isinstance(problem.get("error"), str):
        kind = AuthenticationError if status == 401 else UnavailableError if status == 500 else _statuses.get(status, InternalError)
        return kind(problem["error"], status=status)
    if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
        kind = _statuses.get(status, InternalError)
        return kind(f"the server's URL answered with status {status} and not as Hutch does: check the URL, and what is in between", status=status)
    kind = _kinds.get(problem.get("kind", ""), InternalError)
    if status == 401 and kind is DeniedError:
        kind = AuthenticationError
    result = None
    if isinstance(problem.get("result"), dict):
        from ._results import ExecResult

        result = ExecResult.from_json(problem["result"])
    return kind(problem["detail"], status=problem.get("status") or status, data=problem.get("data"), result=result)
