package agent

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"hutch"
	"hutch/internal/linux/spawn"
	"hutch/internal/wire"
)

// maxArg is the longest argument that the kernel accepts (MAX_ARG_STRLEN).
const maxArg = 128<<10 - 1

// shells are the programs that can run a command line, best first.
var shells = []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh"}

// checkStart refuses a request that cannot become a process.
func checkStart(s wire.Start) error {
	if err := hutch.CheckID(s.ID); err != nil {
		return err
	}
	if s.Command == "" && len(s.Argv) == 0 {
		return hutch.Errorf(hutch.Invalid, "give a command line or arguments")
	}
	if err := checkSteps(s); err != nil {
		return err
	}
	texts := append([]string{s.Command, s.Dir}, s.Env...)
	for _, arg := range slices.Concat(s.Argv, s.Compile) {
		if arg != wire.SourceArg && arg != wire.ProgramArg {
			texts = append(texts, arg)
		}
	}
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return hutch.Errorf(hutch.Invalid, "a zero byte stands in the command, its folder or its environment: no program can be given one")
		}
	}
	for _, kv := range s.Env {
		if strings.IndexByte(kv, '=') < 1 {
			return hutch.Errorf(hutch.Invalid, "%.60q in the environment is not NAME=value", kv)
		}
	}
	return nil
}

// checkSteps refuses fields that this kind of process cannot have.
func checkSteps(s wire.Start) error {
	switch {
	case s.Terminal != nil && (!s.Detach || s.Restart != hutch.RestartNever && s.Restart != ""):
		return hutch.Errorf(hutch.Invalid, "a terminal is for a background process that is not restarted")
	case s.Terminal != nil:
		return s.Terminal.Check()
	case len(s.Compile) > 0 && (s.Detach || s.SourceName == ""):
		return hutch.Errorf(hutch.Invalid, "only the source of a command that is waited for can be compiled")
	}
	return nil
}

// commands returns the commands to try for s as a user, in order. source is the path of an existing source file.
func (a *agent) commands(s wire.Start, u user, source string) []spawn.Command {
	dir := s.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join("/", a.boot.Dir, dir)
	}
	env := a.environ(s, u.home, dir)
	if s.ReadAll && u.ids != nil { // LD_PRELOAD, for example, would give code of the sandbox the privilege
		env = []string{wire.ProcessEnv + "=" + s.ID, "PATH=" + usualPath}
	}
	base := spawn.Command{
		Env: env, Dir: dir, User: u.ids, Apart: a.apart, ReadAll: s.ReadAll, MaxFiles: commandFile,
		Terminal: s.Terminal != nil, Pass: a.boot.Pass, Filter: a.boot.Filter, Offer: a.boot.Offer,
	}
	with := func(path string, argv []string) spawn.Command {
		c := base
		c.Path, c.Argv = path, argv
		return c
	}
	if s.Command == "" {
		argv := slices.Clone(s.Argv)
		for i, arg := range argv {
			switch arg {
			case wire.SourceArg:
				argv[i] = source
			case wire.ProgramArg:
				argv[i] = filepath.Join(filepath.Dir(source), "program")
			}
		}
		path, _ := lookPath(argv[0], env)
		return []spawn.Command{with(path, argv)}
	}
	var cs []spawn.Command
	if words := plainWords(s.Command, env); words != nil { // a plain line does not use $1 and so on
		if path, ok := lookPath(words[0], env); ok {
			cs = append(cs, with(path, words))
		}
	}
	for _, shell := range shells {
		argv := []string{filepath.Base(shell), "-c", s.Command}
		if source != "" {
			argv = []string{filepath.Base(shell), source}
		} else if len(s.Argv) > 0 {
			argv = append(argv, filepath.Base(shell)) // $0
		}
		cs = append(cs, with(shell, append(argv, s.Argv...)))
	}
	return cs
}

// environ returns the environment of s. The request's variables override the sandbox's, and both override TERM and
// HOME. Nothing overrides PWD and the process's id.
func (a *agent) environ(s wire.Start, home, dir string) []string {
	base := a.baseEnv()
	env := make([]string, 0, len(base)+len(s.Env)+4)
	if s.Terminal != nil {
		env = append(env, "TERM="+terminalType)
	}
	env = append(env, wire.ProcessEnv+"="+s.ID, "PWD="+dir)
	if home != "" {
		env = append(env, "HOME="+home)
	}
	at := make(map[string]int, cap(env)) // the request can have tens of thousands of variables
	for i, kv := range env {
		at[name(kv)] = i
	}
	for _, kv := range slices.Concat(base, s.Env) {
		name := name(kv)
		i, there := at[name]
		switch {
		case name == wire.ProcessEnv || name == "PWD":
		case there:
			env[i] = kv
		default:
			at[name] = len(env)
			env = append(env, kv)
		}
	}
	return env
}

// name returns the name of a variable.
func name(kv string) string {
	n, _, _ := strings.Cut(kv, "=")
	return n
}

func getenv(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// plainWords splits a command line that a shell would only use to find and execute one program, so that the shell can
// be skipped; for any other line it returns nil. The program must not be able to notice that the shell was skipped, so
// in doubt the line is not plain.
func plainWords(line string, env []string) []string {
	for _, kv := range env {
		// Variables that make bash read files, or that define functions or set options.
		if strings.HasPrefix(kv, "BASH") || strings.HasPrefix(kv, "SHELLOPTS=") || strings.HasPrefix(kv, "POSIXLY_CORRECT=") {
			return nil
		}
	}
	words := splitWords(strings.Trim(line, " \t\n"))
	if len(words) == 0 || strings.Contains(words[0], "=") || shellWords[words[0]] {
		return nil
	}
	if slices.ContainsFunc(words, func(w string) bool { return len(w) > maxArg }) {
		return nil // bash has its own error for that
	}
	return words
}

// splitWords splits a line of plain characters and of text in single quotes, which is what hutch exec makes of several
// arguments. The result is nil if the line contains anything else that a shell could interpret.
func splitWords(line string) (words []string) {
	var word []byte
	begun, quoted := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\'':
			begun, quoted = true, !quoted
		case quoted:
			word = append(word, c)
		case strings.HasPrefix(line[i:], `\'`):
			word, begun = append(word, '\''), true
			i++
		case c == ' ' || c == '\t':
			if begun {
				words, word, begun = append(words, string(word)), nil, false
			}
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("_./:,+@%-=", c) >= 0:
			word, begun = append(word, c), true
		default:
			return nil
		}
	}
	if quoted {
		return nil
	}
	if begun {
		words = append(words, string(word))
	}
	return words
}

// shellWords are the builtins and keywords of bash.
var shellWords = func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(`
		. : [ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare
		dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts
		hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly
		return select set shift shopt source suspend test then time times trap true type typeset ulimit umask
		unalias unset until wait while`) {
		words[w] = true
	}
	return words
}()

const usualPath = "/usr/local/bin:/usr/bin:/bin"

// lookPath finds a program as execvp does. If it cannot, it returns name itself, and executing that fails with the
// right error.
func lookPath(name string, env []string) (path string, ok bool) {
	if strings.Contains(name, "/") {
		return name, true
	}
	path = getenv(env, "PATH")
	if path == "" {
		path = usualPath
	}
	for dir := range strings.SplitSeq(path, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		var st syscall.Stat_t
		file := dir + "/" + name
		if syscall.Stat(file, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Mode&0o111 != 0 {
			return file, true
		}
	}
	return "/" + name, false // so that an empty or relative name is not found in the current folder
}

// unstarted turns the error of a failed start into one for the caller.
func unstarted(err error) error {
	e, ok := errors.AsType[*spawn.Error](err)
	if !ok {
		return err
	}
	switch {
	case e.Errno == syscall.EAGAIN || e.Errno == syscall.ENOMEM:
		return hutch.Errorf(hutch.Exhausted, "no process can be started: the sandbox is at its limit of pids or memory. End some processes, or make a sandbox with higher limits").With("limit", "pids").Because(err)
	case e.Step == spawn.Exec && (e.Errno == syscall.E2BIG || e.Errno == syscall.ENAMETOOLONG): // gVisor returns ENAMETOOLONG
		return hutch.Errorf(hutch.Invalid, "the command and its environment are too long for the kernel: put the text in a file, or on stdin").Because(err)
	case e.Step == spawn.Become && e.Errno == syscall.EINVAL:
		return hutch.Errorf(hutch.Invalid, "this sandbox has no such user or group id: on the runtime native they end at 65535. Choose another user, or use the runtime gvisor").Because(err)
	case e.Step == spawn.Chdir:
		return hutch.Errorf(hutch.Invalid, "the command cannot start in %s: %s. Make the folder first, or choose another", quote(e.Path), reason(e.Errno)).Because(err)
	case e.Step == spawn.Exec && e.Errno == syscall.ENOENT && exists(e.Path):
		return hutch.Errorf(hutch.Unsupported, "the program %s cannot be executed: the loader or interpreter that it names is not in this sandbox. Use a program for the image's C library (glibc, or musl as in Alpine), a static program, or an image that has the loader", quote(e.Path)).Because(err)
	case e.Step == spawn.Exec && e.Errno == syscall.ENOENT && e.Path == shells[0]: // no shell was found
		return hutch.Errorf(hutch.Unsupported, "this sandbox has no /bin/sh, which a command line needs: run the program itself, with each argument as a word of its own (hutch exec SANDBOX /PROGRAM ARG...), or use an image that has a shell").Because(err)
	case e.Step == spawn.Exec && e.Errno == syscall.ENOENT:
		return hutch.Errorf(hutch.Unsupported, "this sandbox has no program %s: install it, or use an image that has it", quote(filepath.Base(e.Path))).Because(err)
	case e.Step == spawn.Exec:
		return hutch.Errorf(hutch.Invalid, "the program %s cannot be executed: %s", quote(e.Path), reason(e.Errno)).Because(err)
	}
	return err
}

func exists(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil
}

func reason(errno syscall.Errno) string {
	switch errno {
	case syscall.ENOENT:
		return "it does not exist"
	case syscall.ENOTDIR:
		return "it is not a folder"
	case syscall.EACCES:
		return "permission denied"
	}
	return errno.Error()
}

// quote quotes a name for a message, and bounds its length.
func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strconv.Quote(s)
}
