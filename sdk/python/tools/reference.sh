#!/bin/sh
# Makes the API reference, in the folder that is named or in bin/python-reference.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${1:-../../bin/python-reference}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work"
"$work/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: -r requirements-reference.lock
PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 "$work/bin/python" tools/reference.py "$target"
echo "open $target/index.html"
