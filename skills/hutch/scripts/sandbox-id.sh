#!/bin/sh
# Prints the id of the sandbox for something that has a name of its own, such as a chat or a user.
set -eu
if [ $# -ne 1 ] || [ "$1" = --help ]; then
	echo "usage: sandbox-id.sh NAME
The id is lower case, and two names never have the same: it is a hash. Names stay secret if they are hard to guess." >&2
	exit 2
fi
printf 'chat-%s\n' "$(printf %s "$1" | sha256sum | cut -c 1-32)"
