package image

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/erofs/go-erofs"

	"hutch"
	"hutch/internal/account"
)

// HostAccount returns the user of host images.
func HostAccount() Account { return Account{UID: UID, GID: GID, Home: Home} }

// Lookup finds a user of the image: a name or UID, or one of them with :GROUP. A host image has one user.
func (r Root) Lookup(text string) (Account, error) {
	if r.EROFS == "" {
		if slices.Contains([]string{User, "1000", "1000:1000", "user:user"}, text) {
			return HostAccount(), nil
		}
		return Account{}, hutch.Errorf(hutch.Unsupported, "a sandbox of the image \"host\" has the user 1000 only: leave the user out, or create the sandbox with another image (--image debian:12)").Naming(hutch.AboutField, "user")
	}
	below, f, err := openEROFS(r.EROFS)
	if err != nil {
		return Account{}, err
	}
	defer f.Close()
	passwd, group := openOrEmpty(below, "etc/passwd"), openOrEmpty(below, "etc/group")
	defer passwd.Close()
	defer group.Close()
	u, err := account.Lookup(passwd, group, text)
	if err != nil {
		return Account{}, err
	}
	return FromUser(u), nil
}

// FromUser returns the account of a user.
func FromUser(u account.User) Account {
	a := Account{UID: int(u.UID), GID: int(u.GID), Home: u.Home}
	for _, g := range u.Groups {
		a.Groups = append(a.Groups, int(g))
	}
	return a
}

// openOrEmpty opens a file. A file that the image does not have is empty.
func openOrEmpty(root fs.FS, name string) io.ReadCloser {
	f, err := root.Open(name)
	if err != nil {
		return io.NopCloser(strings.NewReader(""))
	}
	return f
}

// As returns the root of an EROFS file for commands of another user: the folders of the user then belong to that user.
func (r Root) As(user Account) (Root, error) {
	if err := checkFolder(user.Home); err != nil {
		return Root{}, err
	}
	user.Home = fromRoot(user.Home)
	below, f, err := openEROFS(r.EROFS)
	if err != nil {
		return Root{}, err
	}
	defer f.Close()
	old := r.Account()
	r.User, r.Files = &user, slices.Clone(r.Files)
	for i, file := range r.Files {
		own := slices.Contains([]string{Workspace, Data, r.Workdir()}, file.Path) && file.UID == old.UID && file.GID == old.GID
		if own {
			r.Files[i].UID, r.Files[i].GID = user.UID, user.GID
		}
	}
	a := above{below: below, root: r}
	a.addOwn(user.Home)
	return a.root, nil
}

// openEROFS opens an image. The caller must close the file.
func openEROFS(path string) (linkFS, *os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	below, err := erofs.Open(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("open the image file %s: %w", path, err)
	}
	links, ok := below.(linkFS)
	if !ok {
		f.Close()
		return nil, nil, fmt.Errorf("open the image file %s: its links cannot be read", path)
	}
	return links, f, nil
}
