"""Writes src/hutch/_sync: the package _async with `async` and `await` taken out. The generated package is never edited.

python tools/unasync.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

here = Path(__file__).resolve().parent.parent / "src/hutch"

#: Words of _async, and their replacements in _sync. They are replaced as whole words, in this order.
words = {
    r"async def": "def",
    r"async for": "for",
    r"async with": "with",
    r"await ": "",
    r"AsyncIterator": "Iterator",
    r"AsyncIterable": "Iterable",
    r"AsyncClient": "Client",
    r"StopAsyncIteration": "StopIteration",
    r"__aiter__": "__iter__",
    r"__anext__": "__next__",
    r"__aenter__": "__enter__",
    r"__aexit__": "__exit__",
    r"aiter_bytes": "iter_bytes",
    r"aclose": "close",
    r"aread": "read",
    r"anext": "next",
    r"Async([A-Z]\w*)": r"\1",
}
skipped = {"_platform.py"}
head = "# Written by tools/unasync.py from src/hutch/_async: change that, and run it.\n"


def sync(text: str) -> str:
    for word, other in words.items():
        text = re.sub(rf"(?<![\w]){word}" + ("" if word.endswith(" ") else r"\b"), other, text)
    return text


def main() -> None:
    stale = []
    for source in sorted((here / "_async").glob("*.py")):
        if source.name in skipped:
            continue
        target, made = here / "_sync" / source.name, head + sync(source.read_text())
        if "--check" in sys.argv:
            if not target.exists() or target.read_text() != made:
                stale.append(target.name)
        else:
            target.write_text(made)
    if stale:
        sys.exit(f"src/hutch/_sync is not what tools/unasync.py makes of src/hutch/_async ({', '.join(stale)}): run it")


if __name__ == "__main__":
    main()
