#!/bin/sh
# Runs code of a chat in the chat's own sandbox, whose variables and files stay.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
usage() {
	echo "usage: chat-session.sh CHAT LANGUAGE CODE
       chat-session.sh --end CHAT
LANGUAGE is python, javascript, typescript or bash." >&2
	exit 2
}
[ $# -gt 0 ] || usage
if [ "$1" = --end ]; then
	[ $# -eq 2 ] || usage
	exec hutch rm "$("$here/sandbox-id.sh" "$2")"
fi
[ $# -eq 3 ] || usage
id=$("$here/sandbox-id.sh" "$1")

# The first message makes the sandbox. Who comes second finds it, also when both come at once.
if ! hutch inspect "$id" >/dev/null 2>&1 &&
	! problem=$(hutch create --network none --sleep-after 5m --lifetime 30d --label pattern=chat "$id" 2>&1) &&
	! hutch inspect "$id" >/dev/null 2>&1; then
	echo "$problem" >&2
	exit 125
fi
exec hutch code --no-create --timeout 60s -l "$2" -c "$3" "$id"
