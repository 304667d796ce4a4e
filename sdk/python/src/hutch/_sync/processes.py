# Written by tools/unasync.py from src/hutch/_async: change that, and run it.
"""Background processes and terminals."""

from __future__ import annotations

import signal as _signal
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from .._errors import ConflictError, HutchTimeoutError
from .._models import HealthCheck, ProcessInfo, SharedTerminal, TerminalLink, TerminalSize, WaitResult
from .._results import Logs
from .._wire import body_of, content_of, query_of
from .base import Env, Handle, patience
from .stream import LogStream, Terminal
from .transport import Request

RestartPolicy = Literal["never", "on-failure", "always"]


class Processes(Handle):
    def start_process(
        self,
        command: str = "",
        *,
        entrypoint: bool = False,
        name: str | None = None,
        cwd: str | None = None,
        env: Env | None = None,
        user: str | None = None,
        secrets: Sequence[str] | None = None,
        restart_policy: RestartPolicy | None = None,
        open_stdin: bool = False,
        terminal: TerminalSize | None = None,
        stop_signal: int | None = None,
        health: HealthCheck | None = None,
    ) -> Process:
        """Starts a background process, which outlives this connection and ends with its sandbox.

        With `entrypoint`, the process is the program of the sandbox's image; leave `command` out.
        """
        body = body_of(
            command=command or None,
            entrypoint=entrypoint or None,
            name=name,
            cwd=cwd,
            env=env,
            user=user,
            secrets=secrets,
            restartPolicy=restart_policy,
            openStdin=open_stdin or None,
            terminal=terminal,
            stopSignal=stop_signal,
            health=health,
        )
        return Process(self, ProcessInfo.from_json(self._call("POST", "/processes", body, patience=120.0)))

    def list_processes(self) -> list[Process]:
        """Background processes, oldest first. Those that ended are kept for a while, 64 at most."""
        return [Process(self, ProcessInfo.from_json(v)) for v in self._call("GET", "/processes")]

    def get_process(self, process_id: str) -> Process:
        return Process(self, ProcessInfo.from_json(self._call("GET", "/processes/{process}", process=process_id)))

    def kill_process(self, process_id: str, signal: int = _signal.SIGTERM) -> None:
        """Sends a signal to a process and all it started. A killed process is not restarted."""
        self._call("POST", "/processes/{process}/signal", {"signal": int(signal)}, process=process_id)

    def kill_all_processes(self) -> None:
        """Kills every background process that runs."""
        for process in self.list_processes():
            if process.info.status in ("starting", "running"):
                self.kill_process(process.process_id, _signal.SIGKILL)

    def clean_processes(self) -> int:
        """Forgets the processes that have ended, with their output, and returns how many there were."""
        return int((self._call("DELETE", "/processes"))["removed"])

    def get_process_logs(self, process_id: str, cursor: int = 0, *, since: datetime | None = None, timestamps: bool = False) -> Logs:
        """The output of a process, from a cursor on."""
        query = query_of(cursor=str(cursor), since=since, timestamps=timestamps)
        return Logs.from_json(self._call("GET", "/processes/{process}/logs", query=query, process=process_id))

    def stream_process_logs(self, process_id: str, cursor: int = 0, *, since: datetime | None = None, timestamps: bool = False) -> LogStream:
        """The output of a process until it has ended. A lost connection is made again, without a gap."""
        path = self._request("GET", "/processes/{process}/logs", process=process_id).path
        return LogStream(self._transport, path, cursor, {"since": since, "timestamps": timestamps})

    def write_input(self, process_id: str, data: str | bytes = b"", *, end: bool = False) -> None:
        """Writes to the standard input of a process, or to its terminal. With `end`, the input ends after the data."""
        request = self._request("POST", "/processes/{process}/input", query=query_of(end=end), process=process_id)
        content = content_of("data", data)
        self._transport.call(Request("POST", request.path, content=content, patience=None))

    def resize_terminal(self, process_id: str, columns: int, rows: int) -> None:
        self._call("POST", "/processes/{process}/resize", {"columns": columns, "rows": rows}, process=process_id)

    def share_terminal(self, process_id: str, lifetime: float | None = None) -> SharedTerminal:
        """Makes a link with which anyone can watch a terminal, but do nothing else. `lifetime` is in seconds; default 3600."""
        return SharedTerminal.from_json(self._call("POST", "/processes/{process}/links", body_of(lifetime=lifetime), process=process_id))

    def terminal_links(self, process_id: str) -> list[TerminalLink]:
        """The links to a terminal, without their secrets."""
        return [TerminalLink.from_json(v) for v in self._call("GET", "/processes/{process}/links", process=process_id)]

    def unshare_terminal(self, process_id: str, link_id: str) -> None:
        """Revokes a link, and disconnects its viewers. A missing link is not an error."""
        self._call("DELETE", "/processes/{process}/links/{link}", process=process_id, link=link_id)

    def wait_process(
        self,
        process_id: str,
        *,
        port: int | None = None,
        path: str | None = None,
        status: int | None = None,
        text: str | None = None,
        pattern: str | None = None,
        cursor: int | None = None,
        healthy: bool = False,
        timeout: float | None = None,
    ) -> WaitResult:
        """Waits for a port, a line of output, the health check or, without any of them, the end.

        It is not an error if the process ends first, or the time is up.
        """
        body = body_of(port=port, path=path, status=status, text=text, pattern=pattern, cursor=cursor, healthy=healthy or None, timeout=timeout)
        return WaitResult.from_json(self._call("POST", "/processes/{process}/wait", body, patience=patience(timeout), process=process_id))

    def terminal(
        self,
        command: str = "bash",
        *,
        columns: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Env | None = None,
        user: str | None = None,
        name: str | None = None,
    ) -> Terminal:
        """Starts a program in a terminal."""
        process = self.start_process(command, terminal=TerminalSize(columns, rows), cwd=cwd, env=env, user=user, name=name)
        return Terminal(self._transport, self._id, process.info)

    def attach_terminal(self, process_id: str) -> Terminal:
        """Opens the terminal of a process that was started before."""
        return Terminal(self._transport, self._id, (self.get_process(process_id)).info)


class Process:
    """A background process."""

    def __init__(self, sandbox: Processes, info: ProcessInfo) -> None:
        self._sandbox = sandbox
        #: Its record, as of the last read: see `refresh`.
        self.info = info

    @property
    def process_id(self) -> str:
        return self.info.process_id

    def refresh(self) -> ProcessInfo:
        """Reads the record again."""
        self.info = (self._sandbox.get_process(self.process_id)).info
        return self.info

    def kill(self, signal: int = _signal.SIGTERM) -> None:
        """Sends a signal to the process and all it started."""
        self._sandbox.kill_process(self.process_id, signal)

    def logs(self, cursor: int = 0) -> Logs:
        return self._sandbox.get_process_logs(self.process_id, cursor)

    def stream_logs(self, cursor: int = 0) -> LogStream:
        return self._sandbox.stream_process_logs(self.process_id, cursor)

    def write(self, data: str | bytes = b"", *, end: bool = False) -> None:
        """Writes to the standard input, if the process was started with `open_stdin` or a terminal."""
        self._sandbox.write_input(self.process_id, data, end=end)

    def share(self, lifetime: float | None = None) -> SharedTerminal:
        """Makes a link with which anyone can watch the terminal. `lifetime` is in seconds; default 3600."""
        return self._sandbox.share_terminal(self.process_id, lifetime)

    def links(self) -> list[TerminalLink]:
        """The links to the terminal, without their secrets."""
        return self._sandbox.terminal_links(self.process_id)

    def unshare(self, link_id: str) -> None:
        """Revokes a link, and disconnects its viewers."""
        self._sandbox.unshare_terminal(self.process_id, link_id)

    def wait_for_exit(self, timeout: float | None = None) -> int:
        """Waits for the end, and returns the exit code."""
        result = self._sandbox.wait_process(self.process_id, timeout=timeout)
        self._met(result, "did not end")
        return self.info.exit_code if self.info.exit_code is not None else -1

    def wait_for_port(self, port: int, *, path: str | None = None, status: int | None = None, timeout: float | None = None) -> None:
        """Waits until a server listens on the port. With `path`, waits until it answers a GET of that path."""
        self._met(self._sandbox.wait_process(self.process_id, port=port, path=path, status=status, timeout=timeout), f"does not listen on port {port}")

    def wait_for_log(self, text: str | None = None, *, pattern: str | None = None, cursor: int | None = None, timeout: float | None = None) -> WaitResult:
        """Waits until a line of the output has the text or the pattern (RE2)."""
        result = self._sandbox.wait_process(self.process_id, text=text, pattern=pattern, cursor=cursor, timeout=timeout)
        return self._met(result, f"did not print {(text or pattern)!r}")

    def wait_until_healthy(self, timeout: float | None = None) -> None:
        """Waits until the health check of the process succeeds."""
        self._met(self._sandbox.wait_process(self.process_id, healthy=True, timeout=timeout), "did not become healthy")

    def _met(self, result: WaitResult, what: str) -> WaitResult:
        self.info = result.process
        name = f"the process {self.info.name or self.process_id}"
        if result.timed_out:
            raise HutchTimeoutError(f"{name} {what} in time: look at its logs, or give a longer timeout", data={"processId": self.process_id})
        if not result.met:
            raise ConflictError(f"{name} has ended with exit code {self.info.exit_code} and {what}: look at its logs", data={"processId": self.process_id})
        return result


__all__ = ["Process", "Processes", "RestartPolicy"]
