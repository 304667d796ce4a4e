"""Makes the API reference of the installed packages with pdoc, in the folder that is named. A warning is an error.

python tools/reference.py FOLDER
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pdoc

import hutch

for name in hutch.__all__:  # each is imported with its first use
    getattr(hutch, name)
for value in vars(hutch).values():
    if isinstance(value, type) and issubclass(value, hutch.HutchError):
        value.__module__ = "hutch._errors"  # where pdoc finds its source; tracebacks show it as part of hutch
warnings.simplefilter("error")
pdoc.render.configure(docformat="google")
# pdoc leaves out the modules of the base classes of sandboxes unless they are named.
parts = [f"hutch.{kind}.{part}" for kind in ("_sync", "_async") for part in ("commands", "processes", "files", "screen", "stream")]
pdoc.pdoc("hutch", *parts, output_directory=Path(sys.argv[1]))
