"""How values look on the wire. Nothing here does input or output, so sync and async share it."""

from __future__ import annotations

import base64
import json
import math
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
    """Reads RFC 3339 with any number of digits after the point; Python 3.10 cannot do that."""
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
    """A time as RFC 3339. A time without a zone is local time."""
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
    return value.to_json() if hasattr(value, "to_json") else value  # json_bytes refuses what JSON does not have


def body_of(**fields: Any) -> dict[str, Any]:
    """The fields of a request that were given, by their names in the API."""
    return {name: json_of(value) for name, value in fields.items() if value is not None}


#: The fields of requests that map names to text, and the word for one such name. The caller chooses these names.
_texts = {"env": "variable", "labels": "label"}


def json_bytes(body: Any) -> bytes:
    """The body of a request. A value that JSON cannot hold, or that the server would read as another value, is refused with its name."""
    if isinstance(body, Mapping):
        for field, what in _texts.items():
            values = body.get(field)
            for name, value in values.items() if isinstance(values, Mapping) else ():
                if isinstance(value, (int, float)):
                    raise InvalidError(f"the {what} {name!r} in {field} is the {_kind(value)} {value!r}: give text, such as {str(value)!r}")
    _check_json("", body)
    return json.dumps(body).encode()


def _check_json(where: str, value: Any) -> None:
    if isinstance(value, str):
        check_text(where, value)
    elif isinstance(value, float):
        check_number(where, value)
    elif isinstance(value, Mapping):
        for name, v in value.items():
            if not isinstance(name, str):
                raise InvalidError(f"{where or 'the request'} has the name {name!r}, which is of the type {type(name).__name__}: give text")
            check_text(f"a name in {where or 'the request'}", name)
            _check_json(f"{where}.{name}" if where else name, v)
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            _check_json(f"{where}[{i}]", v)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidError(f"{where} is bytes, and only text can be sent there: decode it, for example with .decode()")
    elif value is not None and not isinstance(value, int):
        raise InvalidError(f"{where} is of the type {type(value).__name__}, which cannot be sent as JSON: give text, a number, True, False, a list or a dict")


def _kind(value: float) -> str:
    return "truth value" if isinstance(value, bool) else "number"


def check_number(where: str, value: float) -> float:
    """Refuses infinity and NaN, which JSON does not have."""
    if not math.isfinite(value):
        raise InvalidError(f"{where} is {value!r}, which is not a finite number: give a finite number, or leave {where} out for its default")
    return value


def check_text(where: str, value: str) -> str:
    """Refuses half of a surrogate pair: it has no UTF-8, and JSON would replace it silently."""
    try:
        value.encode()
    except UnicodeEncodeError as e:
        raise InvalidError(
            f"{where} has the character {value[e.start]!r} at {e.start}, half of a surrogate pair, which cannot be sent as text: "
            "remove it, or write text.encode('utf-8', 'replace').decode()"
        ) from None
    return value


def content_of(where: str, content: str | bytes | bytearray | memoryview) -> bytes:
    """Text or bytes as bytes."""
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as e:
            raise InvalidError(
                f"{where} has the character {content[e.start]!r} at {e.start}, half of a surrogate pair, which UTF-8 cannot hold: "
                "remove it, or give bytes, such as text.encode('utf-8', 'surrogateescape')"
            ) from None
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise InvalidError(f"{where} is of the type {type(content).__name__}: give text or bytes")


def input_of(stdin: str | bytes | None) -> dict[str, str]:
    """Standard input as the fields of a request."""
    if stdin is None or stdin == "" or stdin == b"":
        return {}
    content = content_of("stdin", stdin)
    return {"stdin": stdin} if isinstance(stdin, str) else {"stdinBase64": base64.b64encode(content).decode()}


def file_of(path: str, content: str | bytes) -> dict[str, str]:
    """A file that goes with a question."""
    data = content_of(f"the file {path!r}", content)
    if isinstance(content, str):
        return {"path": path, "content": content}
    return {"path": path, "content": base64.b64encode(data).decode(), "encoding": "base64"}


def milliseconds(where: str, seconds: float | None) -> int | None:
    return None if seconds is None else round(check_number(where, seconds) * 1000)


def bytes_of(data: str, encoding: str) -> bytes:
    """The bytes of output, from a text and its encoding."""
    return base64.b64decode(data) if encoding == "base64" else data.encode("utf-8", "surrogatepass")


def query_of(**parameters: Any) -> str:
    """A query, without the parameters that are None, False or empty. Names of files are bytes, so surrogates stand for escaped bytes."""
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in parameters.items():
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if v is None or v is False or v == "":
                continue
            where = name.rstrip("_")
            if isinstance(v, (bytes, bytearray, memoryview)):
                raise InvalidError(f"{where} is bytes: give text; os.fsdecode() makes text of the bytes of any path")
            if isinstance(v, float):
                check_number(where, v)
            text = "true" if v is True else text_of(v) if isinstance(v, datetime) else str(v)
            try:
                pairs.append((where, text.encode("utf-8", "surrogateescape")))
            except UnicodeEncodeError as e:
                raise InvalidError(
                    f"{where} has the character {text[e.start]!r} at {e.start}, half of a surrogate pair, "
                    "which is not an escaped byte of a name: remove it; os.fsdecode() escapes bytes"
                ) from None
    return "?" + urlencode(pairs) if pairs else ""


def check_id(what: str, value: str) -> str:
    """An id as a part of a path. A malformed id could make the path lead elsewhere, so it is refused here."""
    if not isinstance(value, str):
        raise InvalidError(f"{value!r} is not an id, but of the type {type(value).__name__}: give the id as text", data={"field": what})
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
    """Parses the bytes of a response into events, in the subset that Hutch sends: every event has a name."""

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
        """The next complete event, if there is one."""
        return self._ready.popleft() if self._ready else None


def names_of(v: Any) -> Any:
    """A record whose names are text: names that are not UTF-8 come as base64, and have escaped bytes (PEP 383) here."""
    if v.get("encoding") != "base64":
        return v
    names = {n: base64.b64decode(v[n]).decode("utf-8", "surrogateescape") for n in ("path", "name", "from", "target") if v.get(n)}
    return {**v, **names}
