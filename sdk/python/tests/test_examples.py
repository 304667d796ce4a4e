"""The examples in README.md, docs/python.md and docs/screen.md, with what they say that they print, and programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

here = Path(__file__).resolve().parent.parent
root = here.parent.parent
blocks = [
    (f"{page.name}-{i}", code, printed)
    for page in (here / "README.md", root / "docs/python.md", root / "docs/screen.md")
    for i, (code, printed) in enumerate(re.findall(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", page.read_text(), re.S))
    if "inspect_ai" not in code  # which is not installed here
]
programs = sorted(p for folder in ("examples/python", "skills/hutch/templates") for p in (root / folder).glob("*.py"))


def need(*programs: str) -> None:
    """Skips a test if programs are missing. The image host takes them from this machine; CI has them."""
    missing = [p for p in programs if shutil.which(p) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"there is no {', '.join(missing)}")


def run(*args: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(here / "src")}
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("code", "printed"), [b[1:] for b in blocks], ids=[b[0] for b in blocks])
def test_page(code: str, printed: str) -> None:
    need(*["Xtigervnc", "xclip"] if ".screen" in code else [])
    got = run("-c", code)
    assert got == printed or not printed


@pytest.mark.parametrize("program", programs, ids=[p.stem for p in programs])
def test_program(program: Path) -> None:
    text = program.read_text()
    needs = re.search(r"^# Needs: (.*)", text, re.M)
    need(*needs[1].split() if needs else [])
    got = run(str(program))
    wanted = re.search(r"^# Prints:\n((?:#.*\n)+)", text, re.M)
    assert wanted is not None, "the program does not say what it prints"
    assert got == re.sub(r"^# ?", "", wanted[1], flags=re.M)
