# Written by tools/unasync.py from src/hutch/_async: change that, and run it.
"""Commands, sessions and code."""

from __future__ import annotations

import secrets as _random
from collections.abc import Callable, Sequence
from typing import Any, Literal

from .._errors import CodeExecutionError, CommandError
from .._models import ContextInfo, Language
from .._results import CodeError, CodeResult, ExecResult, Output, RunResult
from .._wire import body_of, input_of, query_of
from .base import Env, Handle, patience
from .stream import CodeStream, ExecStream

ContextLanguage = Literal["python", "javascript", "typescript", "bash"]


def _command(command: str, stdin: str | bytes | None, **fields: Any) -> dict[str, Any]:
    names = {"max_output": "maxOutput", "session_id": "sessionId", "context_id": "contextId"}
    return {**body_of(**{names.get(n, n): v for n, v in fields.items()}), "command": command, **input_of(stdin)}


def _code(code: str, stdin: str | bytes | None, **fields: Any) -> dict[str, Any]:
    body = _command(code, stdin, **fields)
    body["code"] = body.pop("command")
    return body


class Commands(Handle):
    def exec(
        self,
        command: str,
        *,
        language: str | None = None,
        args: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        user: str | None = None,
        secrets: Sequence[str] | None = None,
        timeout: float | None = None,
        max_output: int | None = None,
        session_id: str | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
    ) -> ExecResult:
        """Runs a bash command line or, with `language`, source text, and waits for it.

        An exit code that is not 0, or the end of `timeout` (seconds; default 30), is a normal result; with `check`, it raises CommandError.
        """
        body = _command(
            command,
            stdin,
            language=language,
            args=args,
            cwd=cwd,
            env=env,
            user=user,
            secrets=secrets,
            timeout=timeout,
            max_output=max_output,
            session_id=session_id,
        )
        limit = None if session_id else patience(timeout)  # a session's commands wait for each other
        result = ExecResult.from_json(self._call("POST", "/exec", body, patience=limit))
        if check and not result.success:
            raise CommandError(result)
        return result

    def exec_stream(
        self,
        command: str,
        *,
        language: str | None = None,
        args: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        user: str | None = None,
        secrets: Sequence[str] | None = None,
        timeout: float | None = None,
        max_output: int | None = None,
        session_id: str | None = None,
        stdin: str | bytes | None = None,
        resumable: bool = False,
    ) -> ExecStream:
        """Runs a command whose output comes while it runs.

        With `resumable`, a lost connection is made again. Without a connection, the command continues for 60 seconds.
        """
        body = _command(
            command,
            stdin,
            language=language,
            args=args,
            cwd=cwd,
            env=env,
            user=user,
            secrets=secrets,
            timeout=timeout,
            max_output=max_output,
            session_id=session_id,
            resumable=resumable or None,
        )
        return ExecStream(self._transport, self._id, self._request("POST", "/exec", body))

    def resume_exec(self, exec_id: str, cursor: int = 0) -> ExecStream:
        """Continues with the output of a resumable command, from a cursor on."""
        request = self._request("GET", "/exec/{exec}", query=query_of(cursor=str(cursor)), exec=exec_id)
        return ExecStream(self._transport, self._id, request, exec_id, cursor)

    def cancel_exec(self, exec_id: str) -> None:
        """Kills a resumable command with everything it started."""
        self._call("DELETE", "/exec/{exec}", exec=exec_id)

    def list_languages(self) -> list[Language]:
        """The languages for which the sandbox has programs."""
        return [Language.from_json(v) for v in self._call("GET", "/languages")]

    def create_session(self, session_id: str | None = None, *, cwd: str | None = None, env: Env | None = None) -> Session:
        """A bash shell that keeps its folder, variables and functions between commands. An existing one is returned unchanged."""
        context = self.create_context("bash", context_id=session_id or "s-" + _random.token_hex(6), cwd=cwd, env=env)
        return Session(self, context.context_id)

    def session(self, session_id: str) -> Session:
        """A session by its id. Its first command creates the session if it is missing."""
        return Session(self, session_id)

    def run_code(
        self,
        code: str,
        *,
        language: ContextLanguage | None = None,
        context_id: str | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        secrets: Sequence[str] | None = None,
        timeout: float | None = None,
        max_output: int | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
        on_output: Callable[[Output], object] | None = None,
        on_result: Callable[[CodeResult], object] | None = None,
        on_error: Callable[[CodeError], object] | None = None,
    ) -> RunResult:
        """Runs code in a context, which keeps its variables for the next run.

        An error that the code raises is part of the result; with `check`, it raises CodeExecutionError. The `on_` functions get output, results
        and the error while the code runs.
        """
        body = _code(
            code,
            stdin,
            language=language,
            context_id=context_id,
            cwd=cwd,
            env=env,
            secrets=secrets,
            timeout=timeout,
            max_output=max_output,
        )
        if on_output or on_result or on_error:
            with CodeStream(self._transport, self._request("POST", "/run", body)) as stream:
                for event in stream:
                    if isinstance(event, Output) and on_output:
                        on_output(event)
                    elif isinstance(event, CodeResult) and on_result:
                        on_result(event)
                    elif isinstance(event, CodeError) and on_error:
                        on_error(event)
                result = stream.result
        else:
            result = RunResult.from_json(self._call("POST", "/run", body, patience=None))
        if check and not result.success:
            raise CodeExecutionError(result)
        return result

    def run_code_stream(
        self,
        code: str,
        *,
        language: ContextLanguage | None = None,
        context_id: str | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        secrets: Sequence[str] | None = None,
        timeout: float | None = None,
        max_output: int | None = None,
        stdin: str | bytes | None = None,
    ) -> CodeStream:
        """Runs code; output, results and the error come while it runs."""
        body = _code(
            code,
            stdin,
            language=language,
            context_id=context_id,
            cwd=cwd,
            env=env,
            secrets=secrets,
            timeout=timeout,
            max_output=max_output,
        )
        return CodeStream(self._transport, self._request("POST", "/run", body))

    def create_context(
        self,
        language: ContextLanguage = "python",
        *,
        context_id: str | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        user: str | None = None,
        secrets: Sequence[str] | None = None,
        idle_timeout: float | None = None,
    ) -> ContextInfo:
        """Starts an interpreter that keeps its state from one run to the next. An existing one is returned unchanged."""
        body = body_of(
            language=language,
            contextId=context_id,
            cwd=cwd,
            env=env,
            user=user,
            secrets=secrets,
            idleTimeout=idle_timeout,
        )
        return ContextInfo.from_json(self._call("POST", "/contexts", body, patience=120.0))

    def create_code_context(
        self,
        language: ContextLanguage = "python",
        *,
        context_id: str | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        secrets: Sequence[str] | None = None,
        idle_timeout: float | None = None,
    ) -> CodeContext:
        """A new code context, as a handle. It shares no variables with other contexts."""
        made = self.create_context(language, context_id=context_id, cwd=cwd, env=env, secrets=secrets, idle_timeout=idle_timeout)
        return CodeContext(self, made.context_id)

    def list_contexts(self) -> list[ContextInfo]:
        """The contexts and sessions, oldest first."""
        return [ContextInfo.from_json(v) for v in self._call("GET", "/contexts")]

    def delete_context(self, context_id: str) -> None:
        """Ends a context and all it started."""
        self._call("DELETE", "/contexts/{context}", context=context_id)

    def interrupt(self, context_id: str) -> None:
        """Ends the run that is under way, as Ctrl-C would, and keeps the state."""
        self._call("POST", "/contexts/{context}/interrupt", context=context_id)


class Session:
    """A bash shell that keeps its folder, variables and functions between commands."""

    def __init__(self, sandbox: Commands, session_id: str) -> None:
        self._sandbox = sandbox
        self.session_id = session_id

    def exec(
        self, command: str, *, env: Env | None = None, timeout: float | None = None, stdin: str | bytes | None = None, check: bool = False
    ) -> ExecResult:
        return self._sandbox.exec(command, session_id=self.session_id, env=env, timeout=timeout, stdin=stdin, check=check)

    def exec_stream(self, command: str, *, env: Env | None = None, timeout: float | None = None, stdin: str | bytes | None = None) -> ExecStream:
        return self._sandbox.exec_stream(command, session_id=self.session_id, env=env, timeout=timeout, stdin=stdin)

    def interrupt(self) -> None:
        self._sandbox.interrupt(self.session_id)

    def delete(self) -> None:
        """Ends the shell and all it started."""
        self._sandbox.delete_context(self.session_id)


class CodeContext:
    """An interpreter that keeps its state from one run to the next."""

    def __init__(self, sandbox: Commands, context_id: str) -> None:
        self._sandbox = sandbox
        self.context_id = context_id

    def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
        on_output: Callable[[Output], object] | None = None,
        on_result: Callable[[CodeResult], object] | None = None,
        on_error: Callable[[CodeError], object] | None = None,
    ) -> RunResult:
        return self._sandbox.run_code(
            code,
            context_id=self.context_id,
            timeout=timeout,
            env=env,
            stdin=stdin,
            check=check,
            on_output=on_output,
            on_result=on_result,
            on_error=on_error,
        )

    def stream(self, code: str, *, timeout: float | None = None, env: Env | None = None, stdin: str | bytes | None = None) -> CodeStream:
        return self._sandbox.run_code_stream(code, context_id=self.context_id, timeout=timeout, env=env, stdin=stdin)

    def interrupt(self) -> None:
        self._sandbox.interrupt(self.context_id)

    def delete(self) -> None:
        """Ends the interpreter and all it started."""
        self._sandbox.delete_context(self.context_id)


__all__ = ["CodeContext", "Session", "Commands", "ContextLanguage"]
