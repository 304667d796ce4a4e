# The screen of a sandbox: display :0, VNC on port 5900 of the loopback. $1 is its size.
# Of several that start at once, one makes the screen and the others wait for it. X's own lock would outlive a sleep without memory.
ready=/tmp/.screen-ready
until_ready() { # or 10 s
	for _ in $(seq 200); do
		[ -e $ready ] && break
		sleep 0.05
	done
	echo 'the screen is ready'
}
exec 9>/tmp/.screen-lock
if command -v flock >/dev/null && ! flock -n 9; then
	until_ready
	exit
fi
rm -f /tmp/.X11-unix/X0 $ready
export DISPLAY=:0
# X itself listens on a port too: the server asks there where the pointer is. Access control admits only this sandbox.
Xtigervnc :0 -geometry "$1" -depth 24 -dpi 96 -desktop screen -rfbport 5900 -localhost -SecurityTypes None -AlwaysShared -UseBlacklist=0 \
	-listen tcp -noreset -nolock -br &
server=$!
exec 9>&-
until [ -S /tmp/.X11-unix/X0 ]; do
	kill -0 $server 2>/dev/null || exit 1
	sleep 0.02
done
# Keys of multimedia keyboards give their places to the letters of other scripts, which the server adds as they are typed.
setxkbmap -symbols pc+us 2>/dev/null
# A window that is there before its manager is not where it asked to be.
if command -v openbox >/dev/null; then
	openbox --startup "touch $ready" >/dev/null 2>&1 &
else
	for manager in matchbox-window-manager xfwm4 metacity icewm fluxbox; do
		command -v $manager >/dev/null && { $manager >/dev/null 2>&1 & break; }
	done
	touch $ready
fi
until_ready
wait $server
