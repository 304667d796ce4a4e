package image

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/erofs/go-erofs"
	"software.sslmate.com/src/go-pkcs12"

	"hutch/internal/linux/names"
)

// EROFSOptions are the image's configuration, and the authority that its programs should trust.
type EROFSOptions struct {
	// Env is the image's environment, KEY=VALUE. Without a PATH it gets the usual one.
	Env []string
	// User is the image's user; nil is the user of host images.
	User *Account
	// WorkingDir is the folder in which commands start; empty is Workspace.
	WorkingDir string
	// Authority is a certificate, as PEM, that programs inside trust in addition to the image's own. May be empty.
	Authority []byte
}

const (
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// mostBundle bounds a file of certificates.
	mostBundle = 4 << 20
	// mostJavaStores limits the files that are written into every sandbox for Java.
	mostJavaStores = 32
	// mostParts bounds how deep a home or a working folder is.
	mostParts = 100
	// tempMode is the mode of /tmp.
	tempMode = 0o777 | fs.ModeSticky | fs.ModeDir
)

// ErrFolder is the error for a home or a working folder with an invalid path.
var ErrFolder = errors.New("the path is too long, or it holds a zero byte")

// checkFolder refuses a path before its parts become folders: there can be millions.
func checkFolder(path string) error {
	tooLong := func(name string) bool { return len(name) > 255 }
	if len(path) > 4095 || strings.Contains(path, "\x00") || slices.ContainsFunc(strings.Split(path, "/"), tooLong) || strings.Count(path, "/") > mostParts {
		return fmt.Errorf("the folder %.100q: %w", path, ErrFolder)
	}
	return nil
}

// FromEROFS returns the root file system in the EROFS file at an absolute path. It reads the file, and writes nothing.
// Relative paths of the options begin at the root.
func FromEROFS(path string, opt EROFSOptions) (Root, error) {
	user := accountOf(opt.User)
	if err := cmp.Or(checkFolder(opt.WorkingDir), checkFolder(user.Home)); err != nil {
		return Root{}, err
	}
	user.Home = fromRoot(user.Home)
	if opt.WorkingDir != "" {
		opt.WorkingDir = fromRoot(opt.WorkingDir)
	}
	links, f, err := openEROFS(path)
	if err != nil {
		return Root{}, err
	}
	defer f.Close()
	a := above{below: links, root: Root{
		EROFS: path, Env: slices.Clone(opt.Env), User: user, WorkingDir: opt.WorkingDir,
	}}
	if a.root.Getenv("PATH") == "" {
		a.root.Env = append(a.root.Env, "PATH="+usualPath)
	}
	a.addFolders()
	if err := a.trust(opt.Authority); err != nil {
		return Root{}, fmt.Errorf("add a certificate to the image file %s: %w", path, err)
	}
	return a.root, nil
}

// fromRoot returns a path below the root.
func fromRoot(path string) string { return filepath.Clean("/" + path) }

// accountOf returns the user of an image.
func accountOf(user *Account) *Account {
	if user == nil {
		host := HostAccount()
		return &host
	}
	copied := *user
	copied.Home = cmp.Or(copied.Home, Home)
	return &copied
}

// linkFS is a file system with links.
type linkFS interface {
	fs.FS
	ReadLink(name string) (string, error)
	Lstat(name string) (fs.FileInfo, error)
}

// owned is an EROFS file's record of a file's owner.
type owned interface {
	UID() uint32
	GID() uint32
}

// above collects the files of a sandbox over an EROFS file.
type above struct {
	below linkFS
	root  Root
}

// inFS returns an absolute path in the form of package fs.
func inFS(path string) string { return cmp.Or(strings.TrimPrefix(filepath.Clean(path), "/"), ".") }

// folderBelow returns the image's folder at path, if no part of path is a link.
func (a *above) folderBelow(path string) (fs.FileInfo, bool) {
	if path != "/" {
		if _, ok := a.folderBelow(filepath.Dir(path)); !ok {
			return nil, false
		}
	}
	info, err := a.below.Lstat(inFS(path))
	return info, err == nil && info.IsDir()
}

// follow returns path free of links, if it exists in the image.
func (a *above) follow(path string) (string, bool) {
	at, missing := walkLinks(path,
		func(path string) (fs.FileInfo, error) { return a.below.Lstat(inFS(path)) },
		func(path string) (string, error) { return a.below.ReadLink(inFS(path)) })
	return at, missing == ""
}

func (a *above) has(path string) bool {
	return slices.ContainsFunc(a.root.Files, func(f File) bool { return f.Path == path })
}

// add adds a file and its parent folders. The first file at a path is kept.
func (a *above) add(f File) {
	if f.Path != "/" {
		a.keepFolder(filepath.Dir(f.Path))
	}
	if !a.has(f.Path) {
		a.root.Files = append(a.root.Files, f)
	}
}

// keepFolder adds a folder as the image has it, or a new one that belongs to root.
func (a *above) keepFolder(path string) {
	f := File{Path: path, Mode: 0o755 | fs.ModeDir}
	if info, ok := a.folderBelow(path); ok {
		f.Mode = modeOf(info) & (fs.ModeDir | fs.ModePerm | fs.ModeSticky)
		f.UID, f.GID = owner(info)
	}
	a.add(f)
}

func owner(info fs.FileInfo) (uid, gid int) {
	if o, ok := info.(owned); ok {
		return int(o.UID()), int(o.GID())
	}
	return 0, 0
}

// modeOf returns the mode of a file of an image. Mode of package erofs has the bits above the permissions at other
// positions than fs.FileMode, so modeOf uses Sys.
func modeOf(info fs.FileInfo) fs.FileMode {
	if st, ok := info.Sys().(*erofs.Stat); ok {
		return st.Mode
	}
	return info.Mode()
}

// free reports whether a folder at path is neither ours nor below one of our files or mount points.
func (a *above) free(path string) bool {
	return !slices.ContainsFunc(a.root.Files, func(f File) bool {
		ours := !f.Mode.IsDir() || slices.Contains([]string{"/proc", "/sys", "/dev", filepath.Dir(AgentPath)}, f.Path)
		return ours && (path == f.Path || strings.HasPrefix(path, f.Path+"/"))
	})
}

// addFolders adds mount points, the folders that every sandbox has, and those that the image's configuration names.
func (a *above) addFolders() {
	user := a.root.Account()
	a.keepFolder("/")
	for _, path := range []string{"/proc", "/sys", "/dev", "/etc"} {
		a.keepFolder(path)
	}
	a.add(File{Path: filepath.Dir(AgentPath), Mode: 0o755 | fs.ModeDir})
	a.add(File{Path: AgentPath, Mode: 0o755})
	a.add(File{Path: SocketDir, Mode: 0o700 | fs.ModeDir})
	for _, path := range []string{"/tmp", "/var/tmp"} {
		a.add(File{Path: path, Mode: tempMode})
	}
	for _, path := range []string{Workspace, Data} {
		a.add(File{Path: path, Mode: 0o755 | fs.ModeDir, UID: user.UID, GID: user.GID})
	}
	a.addNames()
	for _, path := range []string{user.Home, a.root.Workdir()} {
		a.addOwn(path)
	}
}

// addOwn adds a folder that belongs to the user, if the image does not have it.
func (a *above) addOwn(path string) {
	if _, ok := a.follow(path); !ok && a.free(path) {
		user := a.root.Account()
		a.add(File{Path: path, Mode: 0o755 | fs.ModeDir, UID: user.UID, GID: user.GID})
	}
}

// addNames adds the files with which programs look up names and addresses. The agent writes the host name into two of
// them.
func (a *above) addNames() {
	a.write("/etc/hostname", own["hostname"])
	a.write("/etc/hosts", names.Hosts(""))
	a.write("/etc/resolv.conf", own["resolv.conf"])
}

func (a *above) write(path, content string) {
	a.add(File{Path: path, Mode: 0o644, Content: content})
}

// trust adds an authority for all programs, as on host images: to the image's bundles, and to Java's. It also puts the
// authority where a distribution's own program finds it when it makes the bundles again.
func (a *above) trust(authority []byte) error {
	if len(authority) == 0 {
		return nil
	}
	a.write(authorityFile, string(authority))
	a.write("/usr/local/share/ca-certificates/hutch-sandbox.crt", string(authority))
	if anchors := "/etc/pki/ca-trust/source/anchors"; a.isFolder(anchors) {
		a.write(anchors+"/hutch-sandbox.pem", string(authority))
	}
	path, bundle, err := a.addToBundles(string(authority))
	if err != nil {
		return err
	}
	a.setenv("NODE_EXTRA_CA_CERTS", authorityFile)
	for _, name := range bundleVariables {
		a.setenv(name, path)
	}
	return a.trustInJava([]byte(bundle))
}

func (a *above) isFolder(path string) bool {
	_, ok := a.folderBelow(path)
	return ok
}

// addToBundles adds an authority to the image's bundles, and returns the first bundle's path and text. An image without a
// bundle gets that of this machine, with the authority: programs that bring their own authorities use the bundle instead,
// because variables name it, so the usual authorities must be in it.
func (a *above) addToBundles(authority string) (path, text string, err error) {
	for _, name := range bundles {
		at, ok := a.follow(name)
		if !ok || a.has(at) {
			continue
		}
		old, ok, err := a.read(at)
		if err != nil {
			return "", "", err
		}
		if !ok {
			continue
		}
		whole := strings.TrimRight(old, "\n") + "\n" + authority
		a.write(at, whole)
		if path == "" {
			path, text = at, whole
		}
	}
	if path != "" {
		return path, text, nil
	}
	path = bundles[0]
	if _, ok := a.follow(path); ok { // something that is no readable file is there
		path = "/etc/ssl/certs/hutch-bundle.pem"
	}
	text = strings.TrimLeft(strings.TrimRight(machineBundle(), "\n")+"\n"+authority, "\n")
	a.write(path, text)
	return path, text, nil
}

// read returns the text of a file; false unless it is a regular file of at most mostBundle bytes.
func (a *above) read(path string) (string, bool, error) {
	info, err := a.below.Lstat(inFS(path))
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostBundle {
		return "", false, err
	}
	text, err := fs.ReadFile(a.below, inFS(path))
	return string(text), true, err
}

// setenv overrides a variable of the image.
func (a *above) setenv(key, value string) {
	a.root.Env = slices.DeleteFunc(a.root.Env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") })
	a.root.Env = append(a.root.Env, key+"="+value)
}

// javaStorePatterns are the paths of Java's trust stores in images.
var javaStorePatterns = []string{
	"etc/ssl/certs/java/cacerts", "usr/lib/jvm/*/lib/security/cacerts", "usr/lib/jvm/*/jre/lib/security/cacerts",
	"usr/local/openjdk-*/lib/security/cacerts", "opt/*/lib/security/cacerts", "opt/*/*/lib/security/cacerts",
}

func (a *above) trustInJava(bundle []byte) error {
	var stores []string
	for _, pattern := range javaStorePatterns {
		found, err := fs.Glob(a.below, pattern)
		if err != nil {
			return err
		}
		for _, name := range found {
			if at, ok := a.follow("/" + name); ok && len(stores) < mostJavaStores && !slices.Contains(stores, at) {
				stores = append(stores, at)
			}
		}
	}
	if len(stores) == 0 {
		return nil
	}
	store, err := pkcs12.Passwordless.EncodeTrustStore(certificates(bundle), "")
	for _, path := range stores {
		a.write(path, string(store))
	}
	return err
}
