#!/bin/sh
# Lets a coding agent work on a copy of a repository, and prints what it changed as a diff.
set -eu
if [ $# -lt 2 ] || [ "$1" = --help ]; then
	echo "usage: agent-on-repository.sh DIR|URL PROMPT [FLAG...]
HUTCH_AGENT names another agent than Claude Code. FLAG are flags of \`hutch agent run\`. What the agent says goes to the standard error, the diff to the standard output." >&2
	exit 2
fi
repository=$1 prompt=$2
shift 2
exec hutch agent run "${HUTCH_AGENT:-claude}" --repo "$repository" --prompt "$prompt" "$@"
