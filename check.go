package hutch

import (
	"maps"
	"strings"
)

// Every request type has a method Check, which refuses requests that no server could answer: text that is too long, a
// number out of range, two fields that exclude each other. It looks only at the request. The engine calls it before
// anything else, and the Go client before it sends the request. Checks that depend on a server (its highest limits, its
// runtimes, its languages) are made by that server.

const (
	maxLifetime = 10 * 365 * 24 * 3600 // s
	maxLabels   = 64
	maxLabel    = 1 << 10 // bytes of a name and its value
	maxEnv      = 1 << 20 // bytes; the kernel gives a program not many more

	// MaxUser is the longest name of the user of a request, in bytes.
	MaxUser = 200

	// MaxSecretUses is how many secrets one request can ask for.
	MaxSecretUses = 64
)

// checkProgram checks the fields that every request for a program has. Its command is a command line or source code.
func checkProgram(command, dir string, env map[string]string, secrets []string) error {
	switch {
	case strings.TrimSpace(command) == "":
		return Errorf(Invalid, "the command is empty: give a bash command line, or source text with a language").Naming(AboutField, "command")
	case strings.Contains(command, "\x00"):
		return Errorf(Invalid, "the command holds a NUL byte, which no program can be given: send binary data on stdin").Naming(AboutField, "command")
	case len(command) > MaxCommand:
		return Errorf(Invalid, "the command has %d bytes, over the limit of %d: put the data into a file or on stdin", len(command), MaxCommand).Naming(AboutField, "command")
	}
	return checkSurroundings(dir, env, secrets)
}

// checkSurroundings checks the working folder, the environment and the secrets
// of a program.
func checkSurroundings(dir string, env map[string]string, secrets []string) error {
	if len(dir) > MaxPath || strings.Contains(dir, "\x00") || dir != "" && dir[0] != '/' {
		return Errorf(Invalid, "cwd must be an absolute path of at most %d bytes without NUL, such as /workspace", MaxPath).Naming(AboutField, "cwd")
	}
	if err := checkEnv(env); err != nil {
		return err
	}
	return checkSecretUses(env, secrets)
}

func checkArgs(args []string) error {
	size := 0
	for _, arg := range args {
		if strings.Contains(arg, "\x00") {
			return Errorf(Invalid, "an argument holds a NUL byte, which no program can be given: send binary data on stdin").Naming(AboutField, "args")
		}
		size += len(arg) + 1
	}
	if size > MaxCommand {
		return Errorf(Invalid, "the arguments have %d bytes, over the limit of %d: put the data into a file or on stdin", size, MaxCommand).Naming(AboutField, "args")
	}
	return nil
}

func checkEnv(env map[string]string) error {
	size := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return Errorf(Invalid, "the environment variable %q cannot be set: names hold no '=' and are not empty, and nothing holds a NUL byte", k)
		}
		size += len(k) + len(v) + 16 // the size that the kernel counts
	}
	if size > maxEnv {
		return Errorf(Invalid, "the environment has %d variables of %d bytes, over the limit of %d: put the data into a file", len(env), size, maxEnv).Naming(AboutField, "env")
	}
	return nil
}

// checkEnvChanges checks changes of an environment. ChangeEnv checks the resulting environment.
func checkEnvChanges(changes map[string]*string) error {
	set, fixed := map[string]string{}, ""
	for name, value := range changes {
		if set[name] = ""; value != nil {
			set[name] = *value
		}
		if name == "SANDBOX_ID" || name == "SANDBOX_TIMEOUT" {
			fixed = name
		}
	}
	if fixed != "" {
		return Errorf(Invalid, "the variable %s says what the sandbox is and cannot be changed: leave it out", fixed).Naming(AboutField, "env")
	}
	return checkEnv(set)
}

// ChangeEnv returns env after changes, in which nil removes a variable. It refuses an environment that is too large.
func ChangeEnv(env map[string]string, changes map[string]*string) (map[string]string, error) {
	changed := maps.Clone(env)
	if changed == nil {
		changed = map[string]string{}
	}
	for name, value := range changes {
		if delete(changed, name); value != nil {
			changed[name] = *value
		}
	}
	return changed, checkEnv(changed)
}

// checkSecretUses checks the secrets that a request asks for, together with the variables that it sets itself.
func checkSecretUses(env map[string]string, uses []string) error {
	if len(uses) > MaxSecretUses {
		return Errorf(Invalid, "the request asks for %d secrets: at most %d are given", len(uses), MaxSecretUses).Naming(AboutField, "secrets")
	}
	set := make(map[string]bool, len(uses))
	for _, use := range uses {
		variable, _, err := ParseSecretUse(use)
		if err != nil {
			return err
		}
		if _, given := env[variable]; given || set[variable] {
			return SetTwice(variable)
		}
		set[variable] = true
	}
	return nil
}

// SetTwice returns the error for a variable that is set both by a secret and by another setting.
func SetTwice(variable string) error {
	return Errorf(Invalid, "the variable %s is set twice, by env or secrets: leave one out, or give the secret another variable as VARIABLE=NAME", variable).Naming(AboutField, "secrets")
}

// checkLabels limits the labels of a sandbox or secret, because they are stored and are part of every list.
func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return Errorf(Invalid, "there can be %d labels at most, not %d", maxLabels, len(labels)).Naming(AboutField, "labels")
	}
	for k, v := range labels {
		if len(k)+len(v) > maxLabel {
			return Errorf(Invalid, "the label %.40q has %d bytes: give name and value at most %d together", k, len(k)+len(v), maxLabel).Naming(AboutField, "labels")
		}
	}
	return nil
}

// checkLife checks how long a sandbox is kept.
func checkLife(sleepAfter, timeout Seconds, onIdle IdleAction) error {
	if !(sleepAfter >= 0 && sleepAfter <= maxLifetime) || !(timeout >= 0 && timeout <= maxLifetime) {
		return Errorf(Invalid, "sleepAfter and timeout are seconds, not negative and at most %d", maxLifetime)
	}
	switch onIdle {
	case "", IdleHibernate, IdleStop, IdleDestroy:
		return nil
	}
	return Errorf(Invalid, "onIdle is %.40q: use hibernate, stop or destroy", onIdle).Naming(AboutField, "onIdle")
}

func checkMaxOutput(n int) error {
	if n < 0 || n > MaxOutput {
		return Errorf(Invalid, "maxOutput is %d bytes: give 1 to %d, or leave it out for %d", n, MaxOutput, DefaultOutput)
	}
	return nil
}

// checkOptionalUser checks a user that a request can leave out: a name or UID, or one of them with :GROUP.
func checkOptionalUser(user string) error {
	name, _, _ := strings.Cut(user, ":")
	if user != "" && (name == "" || len(user) > MaxUser || strings.ContainsFunc(user, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' }) || strings.Count(user, ":") > 1) {
		return Errorf(Invalid, "%.100q is not a user: give a name or a number, or one of them with a group, as in 1000:1000", user).Naming(AboutField, "user")
	}
	return nil
}

// checkOptionalID checks an id that a request can leave out.
func checkOptionalID(id string) error {
	if id == "" {
		return nil
	}
	return CheckID(id)
}
