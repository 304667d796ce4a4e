// Package subid gives processes of an ordinary user the subordinate ids that an administrator has assigned to that user
// in /etc/subuid and /etc/subgid: see subuid(5). Only root can give such ids to a user namespace. So the programs
// newuidmap and newgidmap do it: they are setuid root, and check the same files.
package subid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/clone"
)

// fewest is how many subordinate ids a user needs: the ids of an image, up to 65534 of its user nobody, and one id for
// the agent.
const fewest = 1 << 16

// IDs are the subordinate ids of this process's user.
type IDs struct {
	Users, Groups Range // the largest ranges of the user

	users, groups []Range // all ranges
	helpers       [2]string
}

// Missing is the reason why this process cannot use subordinate ids, and what an administrator can do about it.
type Missing struct{ Why, Fix string }

func (m *Missing) Error() string { return m.Why + ": " + m.Fix }

// helperFolders are the folders that can contain the two programs. The search path of the caller is not used.
var helperFolders = []string{"/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"}

// helperNames are the names of the two programs, which map users and groups.
var helperNames = [2]string{"newuidmap", "newgidmap"}

const (
	userFile   = "/etc/subuid"
	groupFile  = "/etc/subgid"
	noNewPrivs = "the server runs with no_new_privs, so that newuidmap gains no rights"
)

// Find finds the subordinate ids of this process's user, and maps them once as a trial. If an administrator can fix the
// problem, the error is a *Missing.
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

// files are the paths of the files that assign ids to users.
type files struct{ passwd, group, users, groups string }

// find reads the files. It reports everything that is missing in one error, so that an administrator can fix it in one
// visit.
func find(f files, uid int, folders []string) (*IDs, error) {
	var missing Missing
	found := &IDs{}
	for n, name := range helperNames {
		if found.helpers[n] = lookFor(name, folders); found.helpers[n] == "" && missing.Why == "" {
			missing.add("the program "+name+" is missing", "sudo apt-get install uidmap")
		}
	}
	names, err := namesOf(f.passwd, uid)
	if err != nil {
		return nil, err
	}
	var nextUser, nextGroup int
	if found.users, nextUser, err = usable(f.users, f.passwd, names, uid); err != nil {
		return nil, err
	}
	if found.groups, nextGroup, err = usable(f.groups, f.group, names, uid); err != nil {
		return nil, err
	}
	found.Users, found.Groups = largest(found.users), largest(found.groups)
	if found.Users.Size < fewest || found.Groups.Size < fewest {
		missing.addRanges(names, uid, max(nextUser, nextGroup, 100_000))
	}
	if missing.Why != "" {
		missing.Fix += ", and start the server again"
		return nil, &missing
	}
	return found, nil
}

// usable returns the ranges of a user in a file, without ranges that have the id of an account, because a sandbox would
// act as that account. It also returns the first id after all lines of the file.
func usable(file, accountFile string, names []string, uid int) (ranges []Range, next int, err error) {
	accounts, err := accountIDs(accountFile)
	if err != nil {
		return nil, 0, err
	}
	all, next, err := readRanges(file, names, uid)
	return slices.DeleteFunc(all, func(r Range) bool { return r.hasAny(accounts) }), next, err
}

// largest returns the first of the largest ranges.
func largest(ranges []Range) (most Range) {
	for _, r := range ranges {
		if r.Size > most.Size {
			most = r
		}
	}
	return most
}

// add adds a missing thing, and the command that fixes it.
func (m *Missing) add(why, fix string) {
	if m.Why != "" {
		m.Why, m.Fix = m.Why+", and ", m.Fix+" && "
	}
	m.Why, m.Fix = m.Why+why, m.Fix+fix
}

// addRanges reports that a user has too few ids; all ids from first on are free.
func (m *Missing) addRanges(names []string, uid, first int) {
	if len(names) == 0 {
		m.add(fmt.Sprintf("the user %d has no account in /etc/passwd, and so no subordinate ids", uid),
			"run the server as a user that useradd has made, which assigns them")
		return
	}
	ids := fmt.Sprintf("%d-%d", first, first+fewest-1)
	m.add(fmt.Sprintf("the user %s has no %d subordinate ids in a row in %s and %s", names[0], fewest, userFile, groupFile),
		fmt.Sprintf("sudo usermod --add-subuids %s --add-subgids %s %s", ids, ids, names[0]))
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

// helperTime limits how long a helper can take. A helper takes a millisecond if the files are the only source of names.
const helperTime = 10 * time.Second

// Map gives ids to the user namespace of a process. The process must be a child of this one with the same user and
// group.
func (i *IDs) Map(pid int, users, groups []clone.ID) error {
	done := make(chan error, 1)
	go func() { done <- give(i.helpers[0], pid, users) }() // each helper writes another file
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
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"} // without our variables
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
