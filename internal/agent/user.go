package agent

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/account"
	"hutch/internal/linux/creds"
	"hutch/internal/linux/spawn"
	"hutch/internal/wire"
)

// user is the user that a command runs as.
type user struct {
	ids  *spawn.User // nil for the agent's own
	home string      // empty if the user has none
}

// usual returns the default user of commands.
func usual(boot wire.Boot) user {
	u := user{home: boot.Home}
	if boot.UID == os.Geteuid() && boot.GID == os.Getegid() || !mayBecome() {
		return u
	}
	setgroups, _ := os.ReadFile("/proc/self/setgroups")
	u.ids = &spawn.User{UID: boot.UID, GID: boot.GID, Groups: boot.Groups, KeepGroups: string(setgroups) == "deny\n"}
	return u
}

// mayBecome reports whether this process has the right to change its user and group.
func mayBecome() bool {
	var caps [2]unix.CapUserData
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]) != nil {
		return false
	}
	const need = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	return caps[0].Effective&need == need
}

// userFor returns the user for a command.
func (a *agent) userFor(s wire.Start) (user, error) {
	if s.Whole && a.apart != nil {
		return user{ids: &spawn.User{}, home: "/root"}, nil
	}
	return a.userOf(s.User)
}

// userOf returns the user that a text names, according to the sandbox's present /etc/passwd and /etc/group. If
// commands run in the agent's own user namespace, there is only one user.
func (a *agent) userOf(text string) (user, error) {
	switch {
	case text == "":
		return a.user, nil
	case a.apart == nil:
		return a.onlyUser(text)
	}
	passwd, group := openAsRoot("/etc/passwd"), openAsRoot("/etc/group")
	defer passwd.Close()
	defer group.Close()
	u, err := account.Lookup(passwd, group, text)
	if err != nil {
		return user{}, err
	}
	if u.UID >= wire.AgentID || u.GID >= wire.AgentID {
		return user{}, hutch.Errorf(hutch.Invalid, "no command can run as user %d, group %d: choose ids below %d", u.UID, u.GID, wire.AgentID)
	}
	ids := &spawn.User{UID: int(u.UID), GID: int(u.GID)}
	for _, g := range u.Groups {
		if g < wire.AgentID {
			ids.Groups = append(ids.Groups, int(g))
		}
	}
	return user{ids, u.Home}, nil
}

// onlyUser returns the user of the sandbox, if the text names that user.
func (a *agent) onlyUser(text string) (user, error) {
	passwd, group := openAsRoot("/etc/passwd"), openAsRoot("/etc/group")
	defer passwd.Close()
	defer group.Close()
	u, err := account.Lookup(passwd, group, text)
	if err == nil && int(u.UID) == a.boot.UID && (int(u.GID) == a.boot.GID || !strings.Contains(text, ":")) {
		return a.user, nil
	}
	return user{}, hutch.Errorf(hutch.Unsupported, "all commands of this sandbox run as user %d: leave the user out. Sandboxes with an image other than \"host\" have other users, and root, on the runtime gvisor and, where the server is root, on native", a.boot.UID)
}

// openAsRoot opens a regular file with the rights of user 0. Programs can have replaced the file: anything but a
// regular file counts as empty.
func openAsRoot(path string) io.ReadCloser {
	var f *os.File
	err := asRoot(func() (err error) {
		if f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			f.Close()
			return errors.New("no regular file")
		}
		return nil
	})
	if err != nil {
		return io.NopCloser(strings.NewReader(""))
	}
	return f
}

// asRoot calls do with the rights of user 0, but no capability, if the agent has root in its sandbox; otherwise with
// the agent's rights.
func asRoot(do func() error) error {
	if os.Geteuid() != wire.AgentID {
		return do()
	}
	return creds.Do(0, 0, do)
}

// do calls f with the rights of the user.
func (u user) do(f func() error) error {
	if u.ids == nil {
		return f()
	}
	return creds.Do(u.ids.UID, u.ids.GID, f)
}

// own gives an open file to the user.
func (u user) own(fd int) {
	if u.ids != nil {
		syscall.Fchown(fd, u.ids.UID, u.ids.GID)
	}
}
