package rootfs

import (
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/erofs/go-erofs"

	"hutch/internal/account"
)

// User is a user as an image knows it.
type User = account.User

// LookupUser finds a user in the EROFS file at a path. The text is USER, UID, USER:GROUP or a mix; empty is root.
func LookupUser(path, text string) (User, error) {
	f, err := os.Open(path)
	if err != nil {
		return User{}, err
	}
	defer f.Close()
	root, err := erofs.Open(f)
	if err != nil {
		return User{}, err
	}
	return LookupIn(root, text)
}

// LookupIn finds a user in a tree of files, as LookupUser does.
func LookupIn(root fs.FS, text string) (User, error) {
	passwd, group := open(root, "etc/passwd"), open(root, "etc/group")
	defer passwd.Close()
	defer group.Close()
	return account.Lookup(passwd, group, text)
}

// open opens a file. A file that the image does not have is empty.
func open(root fs.FS, name string) io.ReadCloser {
	f, err := root.Open(name)
	if err != nil {
		return io.NopCloser(strings.NewReader(""))
	}
	return f
}
