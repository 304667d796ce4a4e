"""How values look on the wire. Nothing here does input or output, so sync and async share it."""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ._errors import InvalidError, NotFoundError

_id = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_template = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?\Z")
_secret = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_time = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))\Z")


def time_of(text: str) -> datetime:
    """RFC 3339 with any number of digits after the point, which Python 3.10 does not read."""
    m = _time.match(text)
    if m is None:
        raise ValueError(f"{text!r} is not a time")
    part = int((m[7] or "0")[:6].ljust(6, "0"))
    zone = timezone.utc
    if m[9]:
        minutes = int(m[10]) * 60 + int(m[11])
        zone = timezone(timedelta(minutes=-minutes if m[9] == "-" else minutes))
    return datetime(int(m[1]), int(m[2]), int(m[3]), int(m[4]), int(m[5]), int(m[6]), part, zone)


def text_of(time: datetime) -> str:
    """A time as RFC 3339. One without a zone is local time."""
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def json_of(value: Any) -> Any:
    """A value as JSON has it: models become objects, times become text, and None is left out of objects."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, datetime):
        return text_of(value)
    if isinstance(value, Mapping):
        return {k: json_of(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_of(v) for v in value]
    return value.to_json()


def body_of(**fields: Any) -> dict[str, Any]:
    """The fields of a request that were given, by their names in the API."""
    return {name: json_of(value) for name, value in fields.items() if value is not None}


def input_of(stdin: str | bytes | None) -> dict[str, str]:
    """Standard input as the fields of a request."""
    if not stdin:
        return {}
    if isinstance(stdin, str):
        return {"stdin": stdin}
    return {"stdinBase64": base64.b64encode(stdin).decode()}


def file_of(path: str, content: str | bytes) -> dict[str, str]:
    """A file that goes with a question."""
    if isinstance(content, str):
        return {"path": path, "content": content}
    return {"path": path, "content": base64.b64encode(content).decode(), "encoding": "base64"}


def bytes_of(data: str, encoding: str) -> bytes:
    """What a program printed, of a text and its encoding."""
    return base64.b64decode(data) if encoding == "base64" else data.encode("utf-8", "surrogatepass")


def query_of(**parameters: Any) -> str:
    """A query, without the parameters that are None, False or empty. Names of files are bytes, so surrogates are escaped ones."""
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in parameters.items():
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if v is None or v is False or v == "":
                continue
            text = "true" if v is True else text_of(v) if isinstance(v, datetime) else str(v)
            pairs.append((name.rstrip("_"), text.encode("utf-8", "surrogateescape")))
    return "?" + urlencode(pairs) if pairs else ""


def check_id(what: str, value: str) -> str:
    """An id for a path. A malformed one could name something else there, so it is refused here."""
    if what == "name" and _secret.match(value):
        return value
    if what == "snapshot" and _template.match(value):
        return quote(value, safe=":")
    if what not in ("name", "snapshot") and _id.match(value):
        return value
    if what == "process":
        raise NotFoundError(f"there is no process {value[:80]!r} in the sandbox: list its processes")
    if what == "exec":
        raise NotFoundError(f"there is no resumable command {value[:80]!r} in the sandbox")
    if what == "name":
        raise InvalidError(f"{value[:80]!r} is not the name of a secret: use letters, digits and _, with no digit at the beginning, at most 64")
    raise InvalidError(f"{value[:80]!r} is not an id: use 1 to 63 of a-z, 0-9 and hyphen, with no hyphen at an end", data={"field": what})


def check_path(path: str) -> str:
    if path == "":
        raise InvalidError("the path is empty: give the path of a file or folder, absolute or relative to /workspace")
    return path


def at(path: str, **ids: str | int) -> str:
    """The path of a call, with its ids filled in."""
    for name, value in ids.items():
        path = path.replace("{" + name + "}", str(value) if isinstance(value, int) else check_id(name, value))
    return path


class Event(NamedTuple):
    """A server-sent event."""

    name: str
    data: str
    id: str

    def json(self) -> Any:
        return json.loads(self.data)


class EventParser:
    """Makes events of the bytes of a response, in the subset that Hutch sends: every event has a name."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the pieces of a line that has not ended: each byte is looked at once
        self._name, self._data, self._id = "", "", ""
        self._ready: deque[Event] = deque()

    def feed(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        self._rest.append(rest)
        for line in lines:
            self._line(line.rstrip(b"\r").decode("utf-8", "replace"))

    def _line(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line == "":
            if self._name:
                self._ready.append(Event(self._name, self._data, self._id))
            self._name, self._data = "", ""
        elif name == "event":
            self._name = value
        elif name == "data":
            self._data = f"{self._data}\n{value}" if self._data else value
        elif name == "id":
            self._id = value

    def take(self) -> Event | None:
        """The next event that is whole, if there is one."""
        return self._ready.popleft() if self._ready else None


def names_of(v: Any) -> Any:
    """A record whose names are text: names that are not UTF-8 come as base64, and have escaped bytes (PEP 383) here."""
    if v.get("encoding") != "base64":
        return v
    names = {n: base64.b64decode(v[n]).decode("utf-8", "surrogateescape") for n in ("path", "name", "from", "target") if v.get(n)}
    return {**v, **names}
