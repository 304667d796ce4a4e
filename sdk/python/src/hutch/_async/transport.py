"""Calls over HTTP: requests, errors, retries and events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .._errors import ExhaustedError, HutchError, HutchTimeoutError, InvalidError, UnavailableError, error_of
from .._wire import Event, EventParser, json_bytes
from ._platform import connect, http_client, sleep

if TYPE_CHECKING:
    import httpx

    from ._platform import Socket

#: The most attempts for a call that is safe to repeat, and the pauses between them.
TRIES = 3
PAUSES = (0.1, 0.5)
#: The longest pause that a limit can request. If it requests a longer pause, the call fails at once.
LONGEST_PAUSE = 5.0
#: Seconds of silence after which a stream is lost. The server sends a comment every 15 seconds at least.
SILENCE = 120.0

Body = bytes | AsyncIterable[bytes]

#: The answers of HTTPS servers (in Go, nginx and Apache) to plain HTTP.
_wants_tls = re.compile(rb"HTTP request (was sent )?to (an )?HTTPS|plain HTTP to an SSL")
#: The errors of OpenSSL about an answer that is not TLS.
_no_tls = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL")


def _not_url(url: object) -> InvalidError:
    return InvalidError(f"{url!r} is not the URL of a server: give one such as http://127.0.0.1:7700")


@dataclass
class Request:
    """One call. It is repeated only if it is `safe`: the server then does the same again, or nothing."""

    method: str
    path: str
    body: Any = None
    content: Body | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Seconds without data after which the call fails; None for no limit.
    patience: float | None = 60.0

    @property
    def safe(self) -> bool:
        if self.content is not None:
            return False
        return self.method in ("GET", "DELETE") or self.method == "PUT" or "Idempotency-Key" in self.headers


class Transport:
    """A connection pool to one server."""

    def __init__(self, url: str, token: str, client: httpx.AsyncClient | None = None) -> None:
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            usable = parts.scheme in ("http", "https") and bool(parts.netloc) and parts.port != 0
        except ValueError:  # a port that is not a number, for example
            usable = False
        if not usable:
            raise _not_url(url)
        if not isinstance(token, str):
            raise InvalidError(f"the token is of the type {type(token).__name__}: give it as text")
        odd = next((c for c in token if not " " <= c <= "~"), " " if token != token.strip() else None)
        if odd is not None:  # the token itself is not in the message
            raise InvalidError(
                f"the token has the character {odd!r}, which cannot be sent in a header: "
                "give the token as `hutch token create` printed it, without a space or line break after it"
            )
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {token}"}
        self._own = client is None
        self._client = client

    @property
    def http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = http_client()
        return self._client

    async def aclose(self) -> None:
        if self._own and self._client is not None:
            await self._client.aclose()
            self._client = None

    async def call(self, request: Request) -> Any:
        """Makes a call, and returns the JSON of its answer, or None if the answer is empty."""
        response = await self.send(request)
        if not response.content:
            return None
        try:
            return json.loads(response.content)
        except ValueError:
            raise self._foreign() from None

    async def send(self, request: Request) -> httpx.Response:
        """Makes a call, repeats it if that is safe, and returns the whole answer."""
        for tried in range(TRIES):
            try:
                response = await self._once(request, "application/json")
                await response.aread()
                await response.aclose()
                return response
            except HutchError as e:
                pause = self._pause(request, e, tried)
                if pause is None:
                    raise
            except Exception as e:
                raise self._fault(e) from e
            await sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _pause(self, request: Request, error: HutchError, tried: int) -> float | None:
        """How long to wait before the next try, or None if there must be no next try."""
        if tried >= TRIES - 1:
            return None
        unsent = isinstance(error, UnavailableError) and error.data.get("sent") is False
        if isinstance(error, ExhaustedError):  # a call that a limit refused was not done
            after = error.retry_after
            return after if after is not None and after <= LONGEST_PAUSE and request.content is None else None
        if isinstance(error, UnavailableError) and (request.safe or (unsent and request.content is None)):
            return PAUSES[min(tried, len(PAUSES) - 1)]
        return None

    async def open(self, request: Request, accept: str = "*/*") -> httpx.Response:
        """Makes a call once, and returns the answer before its body is read. The caller closes it."""
        return await self._once(request, accept)

    async def _once(self, request: Request, accept: str) -> httpx.Response:
        import httpx

        content: Any = request.content
        headers = {**self.headers, "Accept": accept, **request.headers}
        if request.body is not None:
            content = json_bytes(request.body)
            headers["Content-Type"] = "application/json"
        elif content is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
        timeout = httpx.Timeout(request.patience, connect=30.0, write=None, pool=None)
        try:
            made = self.http.build_request(request.method, self.url + request.path, content=content, headers=headers, timeout=timeout)
            response = await self.http.send(made, stream=True)
            if response.status_code < 300:
                return response
            await response.aread()
            await response.aclose()
        except httpx.InvalidURL:
            raise _not_url(self.url) from None
        except httpx.HTTPError as e:
            raise self._fault(e) from e
        raise self._refusal(response)

    def _refusal(self, response: httpx.Response) -> HutchError:
        try:
            problem = json.loads(response.content)
        except ValueError:
            problem = None
            if response.status_code == 400 and self.url.startswith("http:") and _wants_tls.search(response.content):
                return self._other_scheme()
        error = error_of(response.status_code, problem)
        after = response.headers.get("Retry-After", "")
        if after.isdigit():
            error.data.setdefault("retryAfter", int(after))
        return error

    def _fault(self, error: Exception) -> Exception:
        """The error for a connection that could not be made, or broke."""
        import httpx

        known = self._of_tls(error)
        if known is not None:
            return known
        if isinstance(error, (httpx.ReadTimeout, httpx.WriteTimeout)):
            return HutchTimeoutError(f"the Hutch server at {self.url} was silent for too long: it is busy, or the connection is lost")
        if isinstance(error, httpx.HTTPError):
            sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            return UnavailableError(
                f"the Hutch server at {self.url} does not answer, or went away: is it running (`hutch serve`), and is the URL right?",
                data={"sent": sent},
            )
        return error

    def _of_tls(self, error: BaseException) -> HutchError | None:
        """The error for a URL with http where the server speaks HTTPS, for the reverse, and for an untrusted certificate."""
        cause: BaseException | None = error
        while cause is not None:
            text = str(cause)
            if self.url.startswith("https:") and any(reason in text for reason in _no_tls):
                return self._other_scheme()
            if self.url.startswith("http:") and "HTTP/1.0 400 Bad Request" in text:  # a server in Go, to a WebSocket
                return self._other_scheme()
            if self.url.startswith("http:") and "illegal request line" in text:  # the error has no text, but perhaps an alert of TLS
                right = "https" + self.url.removeprefix("http")
                return UnavailableError(f"what answers at {self.url} does not speak HTTP: check the URL; if it speaks HTTPS, give the URL {right}")
            if "CERTIFICATE_VERIFY_FAILED" in text:
                why = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or "its check failed"
                return UnavailableError(
                    f"the certificate of the Hutch server at {self.url} is not trusted ({why}): "
                    "check the URL; for a certificate of your own, set SSL_CERT_FILE to the file of its authority",
                    data={"sent": False},
                )
            cause = cause.__cause__ or cause.__context__
        return None

    def _other_scheme(self) -> HutchError:
        spoken, other = ("HTTP", "http") if self.url.startswith("https:") else ("HTTPS", "https")
        right = other + self.url[self.url.index(":") :]
        return UnavailableError(f"the server at {self.url} speaks {spoken}: give the URL {right}", data={"scheme": other})

    def _foreign(self) -> HutchError:
        return UnavailableError(f"what answers at {self.url} does not speak as Hutch does: check the URL")

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The body of an answer. A truncated body is an error."""
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except Exception as e:
            raise self._fault(e) from e
        finally:
            await response.aclose()

    async def events(self, request: Request) -> Events:
        """Makes a call that is answered with server-sent events."""
        return Events(self, await self.open(request, "text/event-stream"))

    async def socket(self, path: str) -> Socket:
        """Opens a WebSocket."""
        from websockets.exceptions import InvalidStatus, WebSocketException

        try:
            return await connect("ws" + self.url.removeprefix("http") + path, self.headers)
        except InvalidStatus as e:
            body = e.response.body or b""
            try:
                problem = json.loads(body)
            except ValueError:
                problem = None
                if e.response.status_code == 400 and self.url.startswith("http:") and _wants_tls.search(body):
                    raise self._other_scheme() from None
            raise error_of(e.response.status_code, problem) from None
        except (OSError, WebSocketException) as e:
            raise self._of_tls(e) or UnavailableError(
                f"the Hutch server at {self.url} does not answer, or went away: is it running (`hutch serve`), and is the URL right?"
            ) from e


class Events:
    """The events of one connection."""

    def __init__(self, transport: Transport, response: httpx.Response) -> None:
        self._response = response
        self._parser = EventParser()
        self._chunks = transport.chunks(response)

    async def next(self) -> Event:
        """The next event. The last one ends the stream, so a connection that ends before is lost."""
        while (event := self._parser.take()) is None:
            try:
                chunk = await anext(self._chunks, None)
            except HutchTimeoutError as e:  # the server is never silent for so long
                raise UnavailableError("the stream was silent for too long: the connection is lost") from e
            if chunk is None:
                raise UnavailableError("the stream ended early: the server went away")
            self._parser.feed(chunk)
        return event

    async def aclose(self) -> None:
        await self._response.aclose()
