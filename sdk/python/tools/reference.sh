#!/bin/sh
# Makes the API reference, in the folder that is named or in bin/python-reference: pdoc of the installed package.
set -eu
cd "$(dirname "$0")/.."
target=${1:-../../bin/python-reference}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work"
"$work/bin/pip" install --quiet --disable-pip-version-check pdoc==16.0.0 .
"$work/bin/python" - "$target" <<'END'
import sys
from pathlib import Path

import hutch
import pdoc

for name in hutch.__all__:  # each is imported with its first use
    getattr(hutch, name)
pdoc.render.configure(docformat="google")
pdoc.pdoc("hutch", output_directory=Path(sys.argv[1]))
END
echo "open $target/index.html"
