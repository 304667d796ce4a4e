package subid

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// write writes the files that assign ids to users, and two helpers.
func write(t *testing.T, users, groups string) (files, []string) {
	t.Helper()
	dir := t.TempDir()
	f := files{passwd: dir + "/passwd", group: dir + "/group", users: dir + "/subuid", groups: dir + "/subgid"}
	for path, text := range map[string]string{
		f.passwd:           "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nada2:x:1000:1000::/:/bin/sh\nsvc:x:300000:300000::/:/bin/sh\nbroken\n",
		f.group:            "root:x:0:\nada:x:1000:\nsvc:x:300000:\n",
		f.users:            users,
		f.groups:           groups,
		dir + "/newuidmap": "", dir + "/newgidmap": "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return f, []string{dir}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const whole = "ada:100000:65536\n"
	for name, tt := range map[string]struct {
		users, groups string
		want          Range // range of users; size 0 means that an error is expected
	}{
		"by name":              {whole, whole, Range{100000, 65536}},
		"by number":            {"1000:100000:65536\n", whole, Range{100000, 65536}},
		"by the second name":   {"ada2:100000:65536\n", whole, Range{100000, 65536}},
		"the largest":          {"ada:400000:10\nada:500000:70000\n" + whole, whole, Range{500000, 70000}},
		"no newline":           {"ada:100000:65536", whole, Range{100000, 65536}},
		"another user":         {"bob:100000:65536\n10000:100000:65536\n", whole, Range{}},
		"a longer name":        {"ada3:100000:65536\nad:100000:65536\n", whole, Range{}},
		"too few":              {"ada:100000:65535\n", whole, Range{}},
		"too few groups":       {whole, "ada:100000:1000\n", Range{}},
		"none":                 {"", "", Range{}},
		"more fields":          {"ada:100000:65536:1\n", whole, Range{}},
		"fewer fields":         {"ada:100000\n", whole, Range{}},
		"a sign":               {"ada:+100000:65536\n", whole, Range{}},
		"spaces":               {"ada: 100000:65536\n", whole, Range{}},
		"octal":                {"ada:0100000:65536\n", whole, Range{}},
		"root's id":            {"ada:0:65536\n", whole, Range{}},
		"the user's own id":    {"ada:1:65536\n", whole, Range{}},
		"another account's id": {"ada:250000:65536\n", whole, Range{}},
		"beyond all ids":       {"ada:4294900000:70000\n", whole, Range{}},
		"overflow":             {"ada:100000:18446744073709551616\n", whole, Range{}},
	} {
		f, folders := write(t, tt.users, tt.groups)
		found, err := find(f, 1000, folders)
		if tt.want.Size == 0 {
			if _, ok := errors.AsType[*Missing](err); !ok || !strings.Contains(err.Error(), "usermod --add-subuids ") || !strings.Contains(err.Error(), " ada,") {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		} else if err != nil || found.Users != tt.want || found.Groups != (Range{100000, 65536}) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
}

// The error names everything that is missing, with the commands to add it and a range that no user has.
func TestMissing(t *testing.T) {
	f, folders := write(t, "bob:100000:65536\n", "bob:100000:65536\ncarol:165536:65536\n")
	for name, tt := range map[string]struct {
		uid     int
		folders []string
		why     []string
		fix     string
	}{
		"ids":     {1000, folders, []string{"ada has no 65536 subordinate ids"}, "sudo usermod --add-subuids 231072-296607 --add-subgids 231072-296607 ada, and start the server again"},
		"all":     {1000, nil, []string{"newuidmap is missing", "ada has no"}, "sudo apt-get install uidmap && sudo usermod --add-subuids 231072-296607 --add-subgids 231072-296607 ada, and start the server again"},
		"account": {77, folders, []string{"the user 77 has no account"}, "run the server as a user that useradd has made, which assigns them, and start the server again"},
	} {
		_, err := find(f, tt.uid, tt.folders)
		missing, ok := errors.AsType[*Missing](err)
		if !ok || missing.Fix != tt.fix || slices.ContainsFunc(tt.why, func(s string) bool { return !strings.Contains(missing.Why, s) }) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Names come only from the files.
	t.Setenv("USER", "bob")
	t.Setenv("LOGNAME", "bob")
	if found, err := find(f, 1000, folders); err == nil {
		t.Errorf("the environment's user has %+v", found)
	}
}

// Files that were given to subordinate ids can be removed only with the help of these ids, whatever their permissions.
func TestGiveAndRemove(t *testing.T) {
	ids, err := Find()
	if err != nil || os.Geteuid() == 0 {
		t.Skip("TestAsUser runs it as a user with subordinate ids: ", err)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	var owners []Owner
	for path := dir + "/a"; len(owners) < 3; path += "/a" {
		if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(path+"/file", nil, 0o600), os.Symlink("/etc", path+"/link")); err != nil {
			t.Fatal(err)
		}
		rel, _ := filepath.Rel(dir, path)
		owners = append(owners, Owner{Path: rel, UID: 1, GID: 2})
	}
	owners = append(owners, Owner{Path: "a/file", UID: 65534, GID: 0, Mode: 0o6755}, Owner{Path: "a/link", UID: 3}, Owner{Path: "a/a/file", UID: 1 << 20, GID: 1 << 20})
	slices.Reverse(owners)
	if err := ids.Give(dir, owners); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir+"/a", &st); err != nil || int(st.Uid) != ids.Users.First+1 || int(st.Gid) != ids.Groups.First+2 {
		t.Errorf("the folder has the owner %d:%d, %v", st.Uid, st.Gid, err)
	}
	if _, err := os.ReadDir(dir + "/a"); !os.IsPermission(err) {
		t.Errorf("the folder of another user can be read: %v", err)
	}
	if err := os.RemoveAll(dir); err == nil {
		t.Error("it can be removed without the ids")
	}
	if err := RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
	if err := ids.Give("/etc", []Owner{{Path: "passwd"}}); err == nil {
		t.Error("a file of root was given away")
	}
}
