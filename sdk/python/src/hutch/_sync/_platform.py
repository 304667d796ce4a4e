"""What differs between async and sync in more than its spelling. _async/_platform.py is the other half."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx
    from websockets.sync.client import ClientConnection as Socket

sleep = time.sleep


def http_client() -> httpx.Client:
    """A client without bounds on connections: each stream needs one. It is imported here to keep `import hutch` quick."""
    import httpx

    return httpx.Client(limits=httpx.Limits(max_connections=None, max_keepalive_connections=100))


def connect(url: str, headers: dict[str, str]) -> Socket:
    from websockets.sync.client import connect

    return connect(url, additional_headers=headers, max_size=None, open_timeout=30).__enter__()


__all__ = ["Socket", "connect", "http_client", "sleep"]
