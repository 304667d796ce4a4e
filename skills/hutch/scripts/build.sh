#!/bin/sh
# Builds a project in two steps: one that gets dependencies from the hosts that are named, and one without network.
set -eu
if [ $# -lt 4 ] || [ "$1" = --help ]; then
	echo "usage: build.sh PROJECT OUT PREPARE BUILD [HOST...]
PREPARE and BUILD are commands. BUILD writes into the folder dist, which is copied to OUT, a new folder." >&2
	exit 2
fi
project=$1 out=$2 prepare=$3 build=$4
shift 4
if [ -e "$out" ]; then
	echo "build.sh: $out exists: remove it, or name another folder" >&2
	exit 2
fi
id=$(hutch create --network none --lifetime 1h --on-idle destroy --label pattern=build)
trap 'hutch rm "$id" >/dev/null' EXIT
trap 'exit 130' HUP INT TERM
hutch cp --quiet "$project" "$id:project" >/dev/null

if [ $# -gt 0 ]; then
	hutch network "$id" --mode allow-list >/dev/null
	for host; do hutch network "$id" --allow "$host" >/dev/null; done
fi
hutch exec --no-create --no-stdin --timeout 10m --cwd /workspace/project "$id" "$prepare" >&2
hutch network "$id" --mode none >/dev/null

hutch exec --no-create --no-stdin --timeout 10m --cwd /workspace/project "$id" "$build" >&2
hutch cp --quiet "$id:project/dist" "$out" >/dev/null
