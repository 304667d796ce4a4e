"""The code that differs between async and sync by more than keywords. _sync/_platform.py is its counterpart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx
    from websockets.asyncio.client import ClientConnection as Socket


async def sleep(seconds: float) -> None:
    import anyio  # comes with httpx, and also works with trio

    await anyio.sleep(seconds)


def http_client() -> httpx.AsyncClient:
    """A client without a limit on connections, because each stream needs its own. httpx is imported here to keep `import hutch` quick."""
    import httpx

    return httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=100))


async def connect(url: str, headers: dict[str, str]) -> Socket:
    from websockets.asyncio.client import connect

    return await connect(url, additional_headers=headers, max_size=None, open_timeout=30)


__all__ = ["Socket", "connect", "http_client", "sleep"]
