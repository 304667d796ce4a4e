"""The base class of the handles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._wire import at
from .transport import Request, Transport

Env = Mapping[str, str]

#: Seconds that a call can take beyond its own time limit.
MARGIN = 60.0


def patience(timeout: float | None, default: float = 30.0) -> float:
    """How long to wait for an answer to a call with a time limit."""
    return (default if timeout is None else timeout) + MARGIN


class Handle:
    """A sandbox by its id: the base of the parts of AsyncSandbox."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._id = sandbox_id

    @property
    def sandbox_id(self) -> str:
        """The id of the sandbox, under the name that it has in the REST API."""
        return self._id

    @property
    def id(self) -> str:
        """The id of the sandbox: the same as `sandbox_id`."""
        return self._id

    def _request(self, method: str, path: str, body: Any = None, *, patience: float | None = 60.0, query: str = "", **ids: str | int) -> Request:
        return Request(method, at("/v1/sandboxes/{id}" + path, id=self._id, **ids) + query, body, patience=patience)

    async def _call(self, method: str, path: str, body: Any = None, *, patience: float | None = 60.0, query: str = "", **ids: str | int) -> Any:
        return await self._transport.call(self._request(method, path, body, patience=patience, query=query, **ids))


__all__ = ["Env", "Handle", "patience"]
