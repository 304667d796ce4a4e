# Runs bash for a session. Bash is interactive, so that an interrupt ends the
# command under way and not the shell; its input is the socket to the agent, on
# which every run is a line with the code, and one that reports its end. What
# was redirected stays so for the next run; what was closed is opened again.
exec 2>&9 9>&- 200>&0 201>&1 202>&2
PS1= PS2= PROMPT_COMMAND=
unset MAILCHECK HISTFILE
set +o history +H
shopt -s expand_aliases
shopt -u huponexit checkwinsize
__hutch_last=0
__hutch_status() { return "$__hutch_last"; }
__hutch_end() {
	__hutch_last=$?
	[[ -e /dev/fd/1 ]] || exec 1>&201
	[[ -e /dev/fd/2 ]] || exec 2>&202
	builtin printf '\n%s$%d\n' "$1" "$__hutch_last" >&200
}
