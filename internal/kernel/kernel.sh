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
# What a run is lent, each as name, attributes and value of before. Bash itself
# has assignments before a command for that, but with eval it forgets them
# after the first builtin.
__hutch_lent=()
__hutch_lend() {
	local __hutch_pair __hutch_name
	for __hutch_pair; do
		__hutch_name=${__hutch_pair%%=*}
		[[ $__hutch_name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || continue
		if [[ -v $__hutch_name ]]; then
			__hutch_lent+=("$__hutch_name" "set${!__hutch_name@a}" "${!__hutch_name}")
		else
			__hutch_lent+=("$__hutch_name" '' '')
		fi
		builtin export -- "$__hutch_pair"
	done
}
__hutch_return() {
	local __hutch_i
	for ((__hutch_i = 0; __hutch_i < ${#__hutch_lent[@]}; __hutch_i += 3)); do
		builtin unset -v "${__hutch_lent[__hutch_i]}"
		[[ ${__hutch_lent[__hutch_i + 1]} ]] || continue
		builtin printf -v "${__hutch_lent[__hutch_i]}" %s "${__hutch_lent[__hutch_i + 2]}"
		[[ ${__hutch_lent[__hutch_i + 1]} != *x* ]] || builtin export "${__hutch_lent[__hutch_i]}"
	done
	__hutch_lent=()
}
__hutch_end() {
	__hutch_last=$?
	__hutch_return
	[[ -e /dev/fd/1 ]] || exec 1>&201
	[[ -e /dev/fd/2 ]] || exec 2>&202
	builtin printf '\n%s$%d\n' "$1" "$__hutch_last" >&200
}
