# Opens $1 in a browser on the screen. Without $1, it only looks whether there is a browser.
export DISPLAY=:0
# Debian's script around Chromium reads /etc/chromium.d, which the image host does not have: the program itself comes first.
for browser in /usr/lib/chromium/chromium chromium chromium-browser google-chrome; do
	command -v $browser >/dev/null || continue
	[ "$1" ] || exit 0
	# The browser's own sandbox needs namespaces that a sandbox does not give; what a page breaks out of, it is still in this one.
	# Port 9222 speaks DevTools on the loopback; it needs a profile of its own.
	exec $browser --no-sandbox --test-type --disable-dev-shm-usage --disable-gpu --no-first-run --no-default-browser-check --password-store=basic \
		--user-data-dir="${HOME:-/tmp}/.config/browser" --remote-debugging-port=9222 --remote-allow-origins='*' --start-maximized -- "$1"
done
for browser in firefox firefox-esr epiphany falkon; do
	command -v $browser >/dev/null || continue
	[ "$1" ] || exit 0
	exec $browser "$1"
done
echo 'there is no browser' >&2
exit 127
