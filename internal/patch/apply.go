package patch

import (
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"hutch"
)

// maxFile bounds a file that is changed, in bytes, and maxAll the new content of all files. The size of the patch is
// not a bound: the change of a binary file can be a thousand times smaller than the new content.
const maxFile = 256 << 20

var maxAll = 1 << 30

// Apply changes the files of a folder. If a file differs from the one that the agent started with, or its path is
// forbidden, Apply changes nothing and the error is Conflict or Denied. All new content is on the disk before the first
// file changes, so nothing is changed if the disk is full either. Changes of submodules are left out; their paths are
// returned.
func (p *Patch) Apply(dir string) (skipped []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	plan := &plan{root: root, steps: map[string]*step{}}
	for i := range p.Files {
		f := &p.Files[i]
		if f.OldMode == modeModule || f.NewMode == modeModule {
			skipped = append(skipped, f.Path)
			continue
		}
		if err := plan.add(f); err != nil {
			return nil, err
		}
	}
	return skipped, plan.carryOut()
}

// plan has the steps, which are determined before anything is changed.
type plan struct {
	root  *os.Root
	steps map[string]*step
	order []*step
	size  int // size of all new content
}

// step is the new state of one path.
type step struct {
	path    string
	mode    string // empty removes it
	content []byte
	removes bool        // a file exists
	was     fs.FileInfo // mode of the existing file, when it was read
	temp    string      // temporary path of the new state
}

func (p *plan) add(f *File) error {
	if err := checkPath(f.Path); err != nil {
		return err
	}
	s, seen := p.steps[f.Path]
	switch {
	case seen && (s.mode != "" || !f.New()):
		return denied(f.Path, "it is in the difference twice")
	case !seen:
		s = &step{path: f.Path}
		p.steps[f.Path] = s
		p.order = append(p.order, s)
	}
	if err := p.checkFolders(f.Path, f.New(), f.Deleted()); err != nil {
		return err
	}
	old, err := p.old(s, f, seen)
	if err != nil {
		return err
	}
	s.removes = s.removes || !f.New()
	if s.mode = f.NewMode; f.Deleted() {
		return nil
	}
	if s.content, err = f.change(old); err != nil {
		return conflict(f.Path, err)
	}
	if p.size += len(s.content); p.size > maxAll {
		return hutch.Errorf(hutch.Exhausted, "the changed files have more than %d MiB together, the limit: copy them with `hutch cp`. Nothing was changed", maxAll>>20)
	}
	if f.NewMode == modeLink {
		return checkLink(f.Path, string(s.content))
	}
	return nil
}

// old returns the content at the path, which must be the diff's old content.
func (p *plan) old(s *step, f *File, removed bool) ([]byte, error) {
	info, err := p.lstat(f.Path)
	switch {
	case f.New() && (errors.Is(err, fs.ErrNotExist) || removed):
		return nil, nil
	case f.New() && err == nil && info.IsDir():
		return nil, nil // checkPlace examines its content
	case f.New() && err == nil:
		return nil, conflict(f.Path, errors.New("the agent made this file, and there is one here"))
	case err != nil:
		return nil, conflict(f.Path, errors.New("it is not there"))
	case (info.Mode()&fs.ModeSymlink != 0) != (f.OldMode == modeLink) || f.OldMode != modeLink && !info.Mode().IsRegular():
		return nil, conflict(f.Path, errors.New("it is of another kind"))
	case info.Size() > maxFile:
		return nil, hutch.Errorf(hutch.Exhausted, "%q has %d bytes, over the limit of %d: change it by hand", f.Path, info.Size(), maxFile)
	}
	s.was = info
	var old []byte
	if f.OldMode == modeLink {
		target, lerr := p.root.Readlink(f.Path)
		old, err = []byte(target), lerr
	} else {
		old, err = p.root.ReadFile(f.Path)
	}
	if err == nil && (f.Binary || f.Deleted()) && !hasID(old, f.oldID) {
		return nil, conflict(f.Path, errDiffers)
	}
	return old, err
}

// hasID reports whether content has git's id.
func hasID(content []byte, id string) bool {
	head := fmt.Appendf(nil, "blob %d\x00", len(content))
	if len(id) == 2*sha256.Size {
		sum := sha256.Sum256(append(head, content...))
		return hex.EncodeToString(sum[:]) == id
	}
	sum := sha1.Sum(append(head, content...))
	return hex.EncodeToString(sum[:]) == id
}

// checkPath refuses a path that leads out of the folder, or to git's own files.
func checkPath(p string) error {
	if !filepath.IsLocal(p) || path.Clean(p) != p || p == "." || strings.ContainsRune(p, 0) {
		return denied(p, "the path leads out of the folder")
	}
	for part := range strings.SplitSeq(p, "/") {
		if gitsOwn(part) {
			return denied(p, "git keeps its own files there, and runs some of them")
		}
	}
	return nil
}

// gitsOwn reports whether some file system treats a name as .git. File systems can ignore the case of letters, invisible
// characters, or dots and blanks at the end.
func gitsOwn(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return name == ".git" || name == "git~1"
}

// checkLink refuses a link that leads out of the folder. The part .. is allowed only at its beginning: after another
// name it can lead anywhere, because that name can be a link.
func checkLink(p, target string) error {
	up := true
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && !up {
			return denied(p, "the link goes up in its middle")
		}
		up = up && part == ".."
		if gitsOwn(part) {
			return denied(p, "the link leads to git's own files")
		}
	}
	if target == "" || strings.ContainsRune(target, 0) || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(p), target)) {
		return denied(p, "the link leads out of the folder")
	}
	return nil
}

// checkFolders refuses a path through a link, whether the link exists or the diff makes it. A new file can be in a folder
// that replaces a link or a file, and a removed file can be in a folder that becomes a file.
func (p *plan) checkFolders(name string, isNew, isGone bool) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		s := p.steps[dir]
		if s != nil && s.mode != "" && !isGone {
			return denied(name, "one of its folders is a file of the difference")
		}
		info, err := p.lstat(dir)
		switch {
		case err != nil || info.IsDir() || s != nil && isNew:
		case info.Mode()&fs.ModeSymlink != 0:
			return denied(name, "one of its folders is a link")
		default:
			return conflict(name, errors.New("one of its folders is a file here"))
		}
	}
	return nil
}

// checkPlace checks a path when the whole diff is known: a folder that becomes a file must not contain anything else.
func (p *plan) checkPlace(s *step) error {
	if err := p.checkFolders(s.path, !s.removes, s.mode == ""); err != nil {
		return err
	}
	info, err := p.lstat(s.path)
	if err != nil || !info.IsDir() {
		return nil
	}
	here := p.root.FS()
	return fs.WalkDir(here, s.path, func(name string, d fs.DirEntry, err error) error {
		switch step := p.steps[name]; {
		case err != nil || step != nil && step.mode == "":
			return err
		case !d.IsDir():
			return conflict(s.path, fmt.Errorf("it is a folder here, with %q in it", name))
		}
		if inside, err := fs.ReadDir(here, name); err != nil || len(inside) > 0 {
			return err
		}
		return conflict(s.path, fmt.Errorf("%q is an empty folder here", name)) // git does not track it
	})
}

// lstat examines a path. A path that leads through a link counts as missing.
func (p *plan) lstat(name string) (fs.FileInfo, error) {
	dir, err := p.folder(name)
	if err == nil && dir != path.Dir(name) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return p.root.Lstat(name)
}

// folder returns the nearest existing folder of a path.
func (p *plan) folder(name string) (dir string, err error) {
	dir = "."
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		next := path.Join(dir, part)
		info, err := p.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir():
			return dir, nil
		case err != nil:
			return "", err
		}
		dir = next
	}
	return dir, nil
}

// carryOut prepares all new files under temporary names. Then it removes old files, and only then renames the new
// files, so that a folder can replace a file, and a file a folder.
func (p *plan) carryOut() error {
	defer p.tidy()
	for _, prepare := range []func(*step) error{p.checkPlace, p.stage, p.unchanged} {
		for _, s := range p.order {
			if err := prepare(s); err != nil {
				return err
			}
		}
	}
	for _, change := range []func(*step) error{p.remove, p.put} {
		for _, s := range p.order {
			if err := change(s); err != nil {
				return fmt.Errorf("change %q: %w. Some files are changed: bring the folder back to what it was, and apply the difference again", s.path, err)
			}
		}
	}
	return nil
}

// stage makes the new state of a path under a temporary name, in the nearest existing folder. For a removal it makes an
// empty file briefly, to check whether the folder can be changed.
func (p *plan) stage(s *step) error {
	dir, err := p.folder(s.path)
	if err == nil {
		s.temp = path.Join(dir, ".hutch-"+rand.Text()[:12])
		err = p.make(s)
	}
	if s.mode == "" && err == nil {
		err = p.root.Remove(s.temp)
		s.temp = ""
	}
	if err != nil {
		return fmt.Errorf("write beside %q: %w. Nothing was changed", s.path, err)
	}
	return nil
}

// make writes the new state of a file. An existing file keeps its permissions, except the permissions to run it.
func (p *plan) make(s *step) error {
	if s.mode == modeLink {
		return p.root.Symlink(string(s.content), s.temp)
	}
	perm := fs.FileMode(0o666)
	if s.mode == modeProgram {
		perm = 0o777
	}
	file, err := p.root.OpenFile(s.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	if info, serr := p.lstat(s.path); serr == nil && info.Mode().IsRegular() {
		perm = info.Mode().Perm() &^ 0o111
		if s.mode == modeProgram {
			perm |= perm & 0o444 >> 2
		}
		err = file.Chmod(perm)
	}
	_, werr := file.Write(s.content)
	return errors.Join(err, werr, file.Close())
}

// unchanged refuses a file that was changed or made since the plan was made.
func (p *plan) unchanged(s *step) error {
	info, err := p.lstat(s.path)
	if s.was == nil {
		if err == nil && !info.IsDir() {
			return conflict(s.path, errors.New("it was made just now"))
		}
		return nil
	}
	if err != nil || !os.SameFile(info, s.was) || info.Size() != s.was.Size() || !info.ModTime().Equal(s.was.ModTime()) {
		return conflict(s.path, errors.New("it was changed just now"))
	}
	return nil
}

// remove removes files, and folders that become empty.
func (p *plan) remove(s *step) error {
	if s.mode != "" {
		return nil
	}
	if err := p.root.Remove(s.path); err != nil {
		return err
	}
	for dir := path.Dir(s.path); dir != "." && p.root.Remove(dir) == nil; dir = path.Dir(dir) {
	}
	return nil
}

// put moves the new state to its path.
func (p *plan) put(s *step) error {
	if s.mode == "" {
		return nil
	}
	if dir := path.Dir(s.path); dir != "." {
		if err := p.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := p.checkFolders(s.path, false, false); err != nil {
		return err
	}
	err := p.root.Rename(s.temp, s.path)
	if err == nil {
		s.temp = ""
	}
	return err
}

// tidy removes temporary files that were not used.
func (p *plan) tidy() {
	for _, s := range p.order {
		if s.temp != "" {
			p.root.Remove(s.temp)
		}
	}
}

func conflict(path string, why error) error {
	return hutch.Errorf(hutch.Conflict, "%q cannot be changed: %v. Nothing was changed; save the difference to a file, and put it in by hand", path, why)
}

func denied(path, why string) error {
	return hutch.Errorf(hutch.Denied, "the difference names %q, which is refused: %s. Nothing was changed", path, why)
}
