// Package subid gives processes of an ordinary user the subordinate ids that an administrator has assigned to that user
// in /etc/subuid and /etc/subgid: subuid(5). Only root can give such ids to a user namespace, so the programs newuidmap
// and newgidmap do it, which are setuid root and check the same files.
package subid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/clone"
)

// fewest is how many subordinate ids a user needs: those of an image, up to 65534 of its user nobody, and one for the agent.
const fewest = 1 << 16

// IDs are the subordinate ids of this process's user.
type IDs struct {
	Users, Groups Range // the largest of the user

	users, groups []Range // all
	helpers       [2]string
}

// Missing is the reason why this process cannot use subordinate ids, and what an administrator can do about it.
type Missing struct{ Why, Fix string }

func (m *Missing) Error() string { return m.Why + ": " + m.Fix }

// helperFolders are where the two programs can be. The search path of the caller is not used.
var helperFolders = []string{"/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"}

// helperNames are the programs for users and for groups.
var helperNames = [2]string{"newuidmap", "newgidmap"}

const (
	userFile   = "/etc/subuid"
	groupFile  = "/etc/subgid"
	noNewPrivs = "the server runs with no_new_privs, so that newuidmap gains no rights"
)

// Find finds the subordinate ids of this process's user, and tries them once. The error is a *Missing if an
// administrator can do something about it.
func Find() (*IDs, error) {
	found, err := find(files{passwd: "/etc/passwd", group: "/etc/group", users: userFile, groups: groupFile}, os.Getuid(), helperFolders)
	if err != nil {
		return nil, err
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && n == 1 {
		return nil, &Missing{noNewPrivs, "remove NoNewPrivileges= from its systemd unit, or --security-opt no-new-privileges from its container"}
	}
	ns, err := found.Namespace()
	if err != nil {
		return nil, err
	}
	return found, unix.Close(ns)
}

// files are the paths of the files that say who has which ids.
type files struct{ passwd, group, users, groups string }

// find reads the files. All that is missing is in one error, so that one visit of an administrator is enough.
func find(f files, uid int, folders []string) (*IDs, error) {
	var missing Missing
	also := func(why, fix string) {
		if missing.Why != "" {
			missing.Why, missing.Fix = missing.Why+", and ", missing.Fix+" && "
		}
		missing.Why, missing.Fix = missing.Why+why, missing.Fix+fix
	}
	found := &IDs{}
	for n, name := range helperNames {
		if found.helpers[n] = lookFor(name, folders); found.helpers[n] == "" && missing.Why == "" {
			also("the program "+name+" is missing", "sudo apt-get install uidmap")
		}
	}
	names, err := namesOf(f.passwd, uid)
	if err != nil {
		return nil, err
	}
	var next int // the first id that no line has
	for _, kind := range []struct {
		file, accounts string
		all            *[]Range
		largest        *Range
	}{{f.users, f.passwd, &found.users, &found.Users}, {f.groups, f.group, &found.groups, &found.Groups}} {
		accounts, err := accountIDs(kind.accounts)
		if err != nil {
			return nil, err
		}
		ranges, end, err := readRanges(kind.file, names, uid)
		if err != nil {
			return nil, err
		}
		next = max(next, end)
		for _, r := range ranges {
			if r.hasAny(accounts) { // a sandbox would act as that account
				continue
			}
			*kind.all = append(*kind.all, r)
			if r.Size > kind.largest.Size {
				*kind.largest = r
			}
		}
	}
	if found.Users.Size < fewest || found.Groups.Size < fewest {
		name, first := "", max(next, 100_000)
		if len(names) > 0 {
			name = names[0]
		}
		why := fmt.Sprintf("the user %s has no %d subordinate ids in a row in %s and %s", name, fewest, userFile, groupFile)
		fix := fmt.Sprintf("sudo usermod --add-subuids %d-%d --add-subgids %d-%d %s", first, first+fewest-1, first, first+fewest-1, name)
		if name == "" {
			why = fmt.Sprintf("the user %d has no account in /etc/passwd, and so no subordinate ids", uid)
			fix = "run the server as a user that useradd has made, which assigns them"
		}
		also(why, fix)
	}
	if missing.Why != "" {
		missing.Fix += ", and start the server again"
		return nil, &missing
	}
	return found, nil
}

func lookFor(name string, folders []string) string {
	for _, dir := range folders {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// helperTime limits how long a helper can take. It takes a millisecond where the files are the only source of names.
const helperTime = 10 * time.Second

// Map gives ids to the user namespace of a process, a child of this one that has the same user and group.
func (i *IDs) Map(pid int, users, groups []clone.ID) error {
	done := make(chan error, 1)
	go func() { done <- give(i.helpers[0], pid, users) }() // each writes another file
	return errors.Join(give(i.helpers[1], pid, groups), <-done)
}

func give(helper string, pid int, ids []clone.ID) error {
	args := []string{strconv.Itoa(pid)}
	for _, id := range ids {
		args = append(args, strconv.Itoa(id.Inside), strconv.Itoa(id.Outside), strconv.Itoa(max(id.Size, 1)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, helper, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"} // it gets nothing of ours
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	return &Missing{
		fmt.Sprintf("%s failed: %.300s", helper, cmp.Or(strings.Join(strings.Fields(string(out)), " "), err.Error())),
		"the package uidmap must be installed with its setuid bits (sudo apt-get install --reinstall uidmap), on a file system without nosuid, and the server must have its account's group",
	}
}

// Namespace makes a user namespace that has all subordinate ids and this process's own user and group, each mapped to
// itself. With it, this process can change files that have any of these ids: see clone.CallInUsers.
func (i *IDs) Namespace() (fd int, err error) {
	return clone.UsersBy(func(pid int) error {
		return i.Map(pid, same(i.users, os.Getuid()), same(i.groups, os.Getgid()))
	})
}

func same(ranges []Range, own int) (ids []clone.ID) {
	ids = append(ids, clone.ID{Inside: own, Outside: own})
	for _, r := range ranges {
		ids = append(ids, clone.ID{Inside: r.First, Outside: r.First, Size: r.Size})
	}
	return ids
}
