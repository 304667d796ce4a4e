#!/bin/sh
# Prepares a project once, and runs each shard of its tests in a copy of that sandbox, all at once.
set -eu
if [ $# -lt 3 ] || [ "$1" = --help ]; then
	echo "usage: ci-runner.sh PROJECT PREPARE SHARD...
PREPARE and each SHARD are commands. The exit code is 0 if all shards passed, else 1." >&2
	exit 2
fi
project=$1 prepare=$2
shift 2
base=$(hutch create --network none --lifetime 1h --on-idle destroy --label pattern=ci)
logs=$(mktemp -d)
copies=
trap 'hutch rm "$base" $copies >/dev/null; rm -rf "$logs"' EXIT
trap 'exit 130' HUP INT TERM
hutch cp --quiet "$project" "$base:project" >/dev/null
hutch exec --no-create --no-stdin --timeout 10m --cwd /workspace/project "$base" "$prepare" >&2
copies=$(hutch fork "$base" --count $#)

n=0
for id in $copies; do
	n=$((n + 1))
	eval "shard=\${$n}"
	(
		code=0
		hutch exec --no-create --no-stdin --timeout 10m --cwd /workspace/project "$id" "$shard" >"$logs/$n.out" 2>&1 || code=$?
		echo "$code" >"$logs/$n.code"
	) &
done
wait

failed=0
for n in $(seq $#); do
	eval "shard=\${$n}"
	echo "=== $shard: exit $(cat "$logs/$n.code")"
	cat "$logs/$n.out"
	[ "$(cat "$logs/$n.code")" = 0 ] || failed=1
done
exit $failed
