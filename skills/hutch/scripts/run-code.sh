#!/bin/sh
# Runs a program in a sandbox of its own, without network, and prints the result as JSON.
set -eu
if [ $# -lt 2 ] || [ "$1" = --help ]; then
	echo "usage: run-code.sh LANGUAGE PROGRAM [FILE...]
The files lie beside the program while it runs. The exit code is that of the program; 125 means that Hutch could not run it." >&2
	exit 2
fi
language=$1 program=$2
shift 2
id=$(hutch create --network none --memory 512 --disk 256 --lifetime 10m --on-idle destroy --label pattern=run)
trap 'hutch rm "$id" >/dev/null' EXIT
trap 'exit 130' HUP INT TERM
[ $# -eq 0 ] || hutch cp --quiet "$@" "$id:" >/dev/null
hutch exec --no-create --no-stdin --json --timeout 30s -l "$language" "$id" "$program"
