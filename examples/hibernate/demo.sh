#!/bin/sh
# A web server and a Python variable that outlive everything: their sandbox goes
# to sleep, the daemon is killed with SIGKILL, and the next daemon, asked for the
# page, wakes the sandbox where it was.
#
#   examples/hibernate/demo.sh [PORT]
#
# It takes a data folder and a daemon of its own, on the default runtime, gvisor.
set -eu
PATH="$(cd "$(dirname "$0")/../../bin" && pwd):$PATH"
port=${1:-7790}
HUTCH_DATA=$(mktemp -d)
HUTCH_URL=http://127.0.0.1:$port
export HUTCH_DATA HUTCH_URL
unset HUTCH_TOKEN

serve() {
	hutch serve --quiet --runtime gvisor --pool 0 --listen "127.0.0.1:$port" --sleep-after 2s >"$HUTCH_DATA/log" 2>&1 &
	daemon=$!
	until curl -sf "$HUTCH_URL/ready" >/dev/null; do
		kill -0 "$daemon" 2>/dev/null || { cat "$HUTCH_DATA/log" >&2; exit 1; }
		sleep 0.1
	done
}
finish() {
	hutch rm --force demo >/dev/null 2>&1 || true
	kill "$daemon" && wait "$daemon" || true
	rm -rf "$HUTCH_DATA"
}

serve
trap finish EXIT
hutch exec demo 'echo "hello from before" > index.html'
hutch start --name web demo 'python3 -m http.server 8000' >/dev/null
hutch exec -s notebook -l python -c 'answer = 6 * 7' demo
url=$(hutch expose demo 8000)
echo "the page:     $(curl -sf --retry 5 --retry-all-errors "$url")"

until hutch ls | grep -q 'demo.*hibernated'; do sleep 0.2; done
echo "the sandbox:  hibernated, $(du -sh "$HUTCH_DATA/server/memory" | cut -f1) on disk"

kill -KILL "$daemon"
wait "$daemon" 2>/dev/null || true
echo "the daemon:   killed"
serve
echo "the page:     $(curl -sf --retry 5 --retry-all-errors "$url")"
echo "the variable: $(hutch exec -s notebook -l python -c 'answer' demo)"
