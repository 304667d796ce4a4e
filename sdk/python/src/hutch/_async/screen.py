"""The screen of a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .._errors import UnavailableError
from .._models import ProcessInfo, ScreenAction, ScreenInfo
from .._results import ControlResult, Region, Screenshot
from .._wire import body_of, query_of
from .base import Handle
from .transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._platform import Socket

ScrollDirection = Literal["up", "down", "left", "right"]

#: Seconds that a call can take: it can wake the sandbox, start the screen, and wait for actions that take a minute.
PATIENCE = 240.0


class AsyncScreen(Handle):
    """The screen of a sandbox: pictures, mouse, keyboard, clipboard and a browser.

    Methods that change something start the screen. Methods that only read raise ConflictError if there is no screen.
    """

    async def start(self, *, width: int | None = None, height: int | None = None) -> ScreenInfo:
        """Starts the screen, or changes its size. Without a size, a new screen has 1280 by 800, and a running one keeps its size."""
        return ScreenInfo.from_json(await self._call("POST", "/screen", body_of(width=width, height=height), patience=PATIENCE))

    async def info(self) -> ScreenInfo:
        """The size of the screen, and where the pointer is."""
        return ScreenInfo.from_json(await self._call("GET", "/screen", patience=PATIENCE))

    async def screenshot(self, region: Region | tuple[int, int, int, int] | None = None) -> Screenshot:
        """A picture of the screen with its pointer, or of a region: x, y, width and height. Parts outside of the screen are cut off."""
        query = query_of(**Region(*region)._asdict()) if region else ""
        response = await self._transport.send(self._request("GET", "/screen/screenshot", query=query, patience=PATIENCE))
        return Screenshot.of(response.content)

    async def do(self, *actions: ScreenAction | Mapping[str, Any]) -> ControlResult:
        """Does actions in their order.

        They have the form of the computer-use tool that models are trained on, so a model's request can be passed on unchanged. This returns
        when the screen has received the actions; programs draw later. If an action fails, the actions before it have been done.
        """
        return ControlResult.from_json(await self._call("POST", "/screen/actions", body_of(actions=actions), patience=PATIENCE))

    async def click(self, x: int, y: int) -> None:
        """Clicks with the left button."""
        await self.do(ScreenAction("left_click", coordinate=[x, y]))

    async def double_click(self, x: int, y: int) -> None:
        """Clicks twice with the left button."""
        await self.do(ScreenAction("double_click", coordinate=[x, y]))

    async def right_click(self, x: int, y: int) -> None:
        """Clicks with the right button."""
        await self.do(ScreenAction("right_click", coordinate=[x, y]))

    async def move(self, x: int, y: int) -> None:
        """Moves the pointer."""
        await self.do(ScreenAction("mouse_move", coordinate=[x, y]))

    async def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Drags with the left button from one point to another."""
        await self.do(ScreenAction("left_click_drag", start_coordinate=list(start), coordinate=list(end)))

    async def scroll(self, x: int, y: int, direction: ScrollDirection, amount: int = 3) -> None:
        """Turns the wheel by some clicks."""
        await self.do(ScreenAction("scroll", coordinate=[x, y], scroll_direction=direction, scroll_amount=amount))

    async def type(self, text: str) -> None:
        """Types a text, in any script."""
        await self.do(ScreenAction("type", text=text))

    async def press(self, keys: str) -> None:
        """Presses keys together, such as ``ctrl+s`` or ``Return``."""
        await self.do(ScreenAction("key", text=keys))

    async def hold(self, keys: str, duration: float) -> None:
        """Holds keys for some seconds."""
        await self.do(ScreenAction("hold_key", text=keys, duration=duration))

    async def clipboard(self) -> str:
        """The text that a program copied; empty if there is none."""
        return str((await self._call("GET", "/screen/clipboard", patience=PATIENCE))["text"])

    async def set_clipboard(self, text: str) -> None:
        """Sets the text of the clipboard."""
        await self._call("PUT", "/screen/clipboard", {"text": text}, patience=PATIENCE)

    async def open(self, url: str) -> ProcessInfo:
        """Opens a page in a browser on the screen. The returned process is the browser, or a program that passes the page to a running browser."""
        return ProcessInfo.from_json(await self._call("POST", "/screen/open", {"url": url}, patience=PATIENCE))

    def view(self, *, control: bool = False) -> AsyncScreenView:
        """A viewer, which speaks VNC. Without control it only watches."""
        return AsyncScreenView(self._transport, self._request("GET", "/screen/view", query=query_of(control=control)).path)


class AsyncScreenView:
    """A connection with the screen that speaks RFB 3.8, VNC's protocol, without a password. Iterate over it for the server's bytes."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._socket: Socket | None = None

    async def _connection(self) -> Socket:
        if self._socket is None:
            self._socket = await self._transport.socket(self._path)
        return self._socket

    async def send(self, data: bytes) -> None:
        """Sends bytes to the screen."""
        socket = await self._connection()
        await socket.send(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        from websockets.exceptions import ConnectionClosed

        socket = await self._connection()
        while True:
            try:
                message = await socket.recv()
            except ConnectionClosed as e:
                raise UnavailableError("the connection with the screen is lost: the screen has ended, or the server went away") from e
            yield message if isinstance(message, bytes) else message.encode()

    async def aclose(self) -> None:
        """Leaves the screen. The screen continues."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


__all__ = ["AsyncScreen", "AsyncScreenView", "ScrollDirection"]
