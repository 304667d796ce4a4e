#!/bin/sh
# Installs Hutch from an unpacked archive, or from a clone after `make build`:
#
#   install.sh [--prefix DIR] [--no-service]
#   install.sh uninstall [--prefix DIR] [--purge]
#
# The prefix is /usr/local. As root, or with DESTDIR, it also installs a service
# of systemd and /etc/hutch/hutch.yaml, unless --no-service is given. Uninstall
# ends the server and its sandboxes, and removes what was installed; settings that
# were changed and the data folder stay, unless --purge is given.
set -eu

fail() { echo "install.sh: $*" >&2; exit 1; }

action=install prefix=/usr/local service=yes purge=no
while [ $# -gt 0 ]; do
	case $1 in
	install | uninstall) action=$1 ;;
	--prefix) [ $# -gt 1 ] || fail '--prefix needs a folder'; prefix=$2; shift ;;
	--prefix=*) prefix=${1#*=} ;;
	--no-service) service=no ;;
	--purge) purge=yes ;;
	-h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit ;;
	*) fail "there is no $1: see $0 --help" ;;
	esac
	shift
done
case $prefix in /*) ;; *) fail "the prefix $prefix is not an absolute path" ;; esac
dest=${DESTDIR:-}
[ "$(id -u)" = 0 ] || [ -n "$dest" ] || service=no
list=$dest$prefix/share/hutch/installed # the paths of all that was installed; folders end in /
unit=$dest/etc/systemd/system/hutch.service
config=$dest/etc/hutch/hutch.yaml
if [ "$(id -u)" = 0 ] || [ -n "$dest" ]; then
	data=$dest${HUTCH_DATA:-/var/lib/hutch}
else
	data=${HUTCH_DATA:-${XDG_DATA_HOME:-$HOME/.local/share}/hutch}
fi

# systemd reports whether systemd runs here and is ours to ask.
systemd() { [ -z "$dest" ] && [ "$(id -u)" = 0 ] && [ -d /run/systemd/system ]; }

# folder makes a folder and those above it, and lists what it made.
folder() {
	[ -d "$1" ] && return
	folder "$(dirname "$1")"
	mkdir "$1"
	echo "$1/" >>"$new"
}

# put writes a file beside and renames it: a program that runs keeps its old file.
put() { # MODE FROM TO
	folder "$(dirname "$3")"
	cp "$2" "$3.new"
	chmod "$1" "$3.new"
	mv -f "$3.new" "$3"
	echo "$3" >>"$new"
}

# payload sets $from to a folder with bin, lib and share.
payload() {
	from=$(cd "$(dirname "$0")" && pwd)
	[ -x "$from/bin/hutch" ] && return
	clone=$(dirname "$from")
	[ -x "$clone/bin/hutch" ] || fail "there are no programs in $from/bin or $clone/bin: unpack an archive, or run make build"
	from=$work/payload
	mkdir -p "$from/bin" "$from/lib/systemd/system" "$from/share/hutch" "$from/share/bash-completion/completions" \
		"$from/share/zsh/site-functions" "$from/share/fish/vendor_completions.d"
	for p in hutch hutch-agent hutch-runsc hutch-gofer; do cp "$clone/bin/$p" "$from/bin/"; done
	"$from/bin/hutch" man "$from/share/man/man1"
	"$from/bin/hutch" completion bash >"$from/share/bash-completion/completions/hutch"
	"$from/bin/hutch" completion zsh >"$from/share/zsh/site-functions/_hutch"
	"$from/bin/hutch" completion fish >"$from/share/fish/vendor_completions.d/hutch.fish"
	cp "$clone/deploy/hutch.service" "$from/lib/systemd/system/"
	cp "$clone/deploy/hutch.yaml" "$from/share/hutch/"
}

install() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	new=$work/installed
	payload
	[ ! -e "$list" ] || cp "$list" "$new" # an upgrade: what the earlier version had is ours too
	folder "$(dirname "$list")"
	for p in hutch hutch-agent hutch-runsc hutch-gofer; do put 0755 "$from/bin/$p" "$dest$prefix/bin/$p"; done
	(cd "$from/share" && find . -type f) >"$work/share"
	while read -r f; do put 0644 "$from/share/$f" "$dest$prefix/share/${f#./}"; done <"$work/share"
	if [ $service = yes ]; then
		sed "s#/usr/bin/hutch#$prefix/bin/hutch#" "$from/lib/systemd/system/hutch.service" >"$work/unit"
		put 0644 "$work/unit" "$unit"
		folder "$(dirname "$config")"
		[ -e "$config" ] || { cp "$from/share/hutch/hutch.yaml" "$config" && chmod 0644 "$config"; }
	fi
	sort -u "$new" >"$list"
	if [ $service = yes ] && systemd; then
		systemctl daemon-reload
		systemctl try-restart hutch.service
		echo 'start it with: systemctl enable --now hutch'
	fi
	echo "installed Hutch in $dest$prefix; see $prefix/bin/hutch doctor"
}

uninstall() {
	[ -e "$list" ] || fail "nothing was installed in $dest$prefix by install.sh: give the --prefix of the installation"
	if [ -e "$unit" ] && systemd; then systemctl disable --now hutch.service; fi
	if [ -z "$dest" ] && [ -d "$data" ]; then
		if [ $purge = yes ]; then "$prefix/bin/hutch" down --destroy --data "$data"; else "$prefix/bin/hutch" down --data "$data"; fi
	fi
	if [ $purge = yes ] || cmp -s "$config" "$dest$prefix/share/hutch/hutch.yaml"; then rm -f "$config"; fi
	installed=$(sort -r "$list") # what is in a folder comes before it
	rm -f "$list"
	echo "$installed" | while read -r f; do
		case $f in
		*/) rmdir "$f" 2>/dev/null || true ;; # others keep theirs in it
		*) rm -f "$f" ;;
		esac
	done
	if systemd; then systemctl daemon-reload; fi
	rmdir "$(dirname "$config")" 2>/dev/null || true
	[ $purge = no ] || rm -rf "$data"
	[ ! -d "$data" ] || echo "the data stays in $data"
	[ ! -e "$config" ] || echo "your settings stay in $config"
}

$action
