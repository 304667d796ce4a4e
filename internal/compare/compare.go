// Package compare finds what differs between two archives of the files of sandboxes.
//
// An archive was written inside a sandbox, so it can hold anything that a hostile program wants. It is only read as a stream: nothing is
// unpacked, and no path in it is opened. The archive of a snapshot is on disk also if the snapshot has memory, so no copy of the sandbox has to
// be started to read its files.
//
// The names in an archive have no order, so the two streams cannot be merged. They are read in three passes:
//
//  1. the first archive: for each path its [state], which is its size, mode, owner and the digest of its content
//  2. the second archive: its states too, and of each file that differs the name and, if it is a short text, the text
//  3. the first archive again: the other half of each file that differs, and the names of files that are missing in the second
//
// So memory holds some 100 bytes for each file, and names and texts only of files that differ. The second archive is
// read once, because a running sandbox can be packing it at that moment.
//
// Everything is bounded: the number of files, the bytes that are read (holes of sparse files count), the changes, names
// and texts that are kept, and the length of a path in the answer. Reading ends with the context. The difference of two
// texts takes time in proportion to their number of lines, whatever the lines contain.
package compare

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"hutch"
)

// These are the bounds of one comparison.
const (
	maxFiles   = 500_000 // in one archive
	maxChanges = 5_000   // in the answer
	maxNames   = 4 << 20 // bytes of the paths and targets in the answer
	maxHeld    = 8 << 20 // bytes of texts that wait for the texts of the first archive
	maxPatches = 2 << 20 // bytes of patches in the answer
)

// aFile is about the memory that the state of a file takes, in bytes.
const aFile = 100

// Archive is one side of a comparison.
type Archive struct {
	Name string // for errors, such as: the snapshot "before"
	Most int64  // bytes of content that the archive can have
	// Read calls read with the bytes of the archive. The first archive is read twice.
	Read func(ctx context.Context, read func(io.Reader) error) error
}

// Options configure a comparison.
type Options struct {
	Path string // a file or a folder, absolute; empty for everything
	Text bool   // add patches
	// Take reserves n more bytes of memory. It returns false if the memory budget does not allow them.
	Take func(n int) bool
}

// Archives returns what differs between two archives.
func Archives(ctx context.Context, a, b Archive, opt Options) (hutch.SnapshotDiff, error) {
	if opt.Path != "" {
		opt.Path = path.Clean(opt.Path)
	}
	c := &comparison{Options: opt, before: states{}, after: states{}, changes: map[key]*change{}}
	err := c.scan(ctx, a, c.before, nil)
	if err == nil {
		err = c.scan(ctx, b, c.after, c.noteAfter)
	}
	if err == nil && !c.same() {
		err = c.scan(ctx, a, nil, c.noteBefore)
	}
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	return c.result(), nil
}

// key identifies a path: the beginning of its digest.
type key [16]byte

func keyOf(name string) (k key) {
	sum := sha256.Sum256([]byte(name))
	copy(k[:], sum[:])
	return k
}

// state is the part of a file that is compared, in addition to its path. digest is that of the content, or of the
// target of a symlink.
type state struct {
	digest   [sha256.Size]byte
	size     int64
	uid, gid int
	mode     hutch.FileMode
	kind     uint8
}

// These are the kinds of files in states.
const (
	regular uint8 = iota
	directory
	symlink
	other
)

var types = [...]hutch.FileType{hutch.RegularFile, hutch.Directory, hutch.Symlink, hutch.OtherFile}

type states map[key]state

// comparison is the work for one answer.
type comparison struct {
	Options
	before, after states
	changes       map[key]*change // the changes in the answer
	truncated     bool
	names         int // bytes of names in the answer
	held          int // bytes of texts of the second archive
	patches       int // bytes of patches in the answer
}

// change is a change in the answer. text is the content in the second archive, kept until the first archive is read a
// second time.
type change struct {
	hutch.FileChange
	text content
}

// content is the text of a file, or the reason why it has no text.
type content struct {
	text string
	none hutch.PatchOmission
}

// entry is a file of an archive.
type entry struct {
	key
	state
	info    hutch.FileInfo
	content content
}

func (c *comparison) same() bool {
	if len(c.before) != len(c.after) {
		return false
	}
	for k, s := range c.before {
		if other, ok := c.after[k]; !ok || other != s {
			return false
		}
	}
	return true
}

// noteAfter keeps a file of the second archive if it differs from that file in the first archive.
func (c *comparison) noteAfter(e *entry) {
	was, there := c.before[e.key]
	old := c.changes[e.key] // the archive can have a path twice: the last entry counts, as in unpacking
	if there && was == e.state {
		if old != nil {
			c.held -= len(old.text.text)
			delete(c.changes, e.key)
		}
		return
	}
	if old == nil {
		if old = c.add(e); old == nil {
			return
		}
	}
	c.held -= len(old.text.text)
	old.Kind, old.After, old.text = hutch.AddedFile, &e.info, content{}
	if there {
		old.Kind = hutch.ChangedFile
	}
	if !c.Text || e.kind != regular || there && was.kind == regular && was.digest == e.digest {
		return
	}
	if old.text = e.content; c.held+len(old.text.text) > maxHeld {
		old.text = content{none: hutch.PatchLimit}
	}
	c.held += len(old.text.text)
}

// noteBefore adds the data of the first archive to a change.
func (c *comparison) noteBefore(e *entry) {
	was := c.before[e.key] // the first pass has computed the digest, so this pass need not
	now, there := c.after[e.key]
	if there && was == now {
		return
	}
	x := c.changes[e.key]
	if x == nil && there { // the change did not fit into the memory budget
		return
	}
	if x == nil {
		if x = c.add(e); x == nil {
			return
		}
		x.Kind = hutch.DeletedFile
	}
	e.info.Size, e.info.Mode, e.info.UID, e.info.GID = was.size, was.mode, was.uid, was.gid
	x.Before = &e.info
	if !c.Text || was.kind != regular && (!there || now.kind != regular) || there && was.kind == now.kind && was.digest == now.digest {
		return
	}
	c.compareTexts(x, e.content, x.text)
}

// wantsText reports whether the third pass needs the content of a file.
func (c *comparison) wantsText(k key) bool {
	was, now := c.before[k], c.after[k]
	_, there := c.after[k]
	if there && (c.changes[k] == nil || was.digest == now.digest) {
		return false
	}
	return c.Text && was.kind == regular
}

// compareTexts sets the patch of a change.
func (c *comparison) compareTexts(x *change, before, after content) {
	x.Patch = ""
	if x.NoPatch = cmp.Or(before.none, after.none); x.NoPatch != "" {
		return
	}
	patch := unified(before.text, after.text)
	if c.patches+len(patch) > maxPatches {
		x.NoPatch = hutch.PatchLimit
		return
	}
	c.patches += len(patch)
	x.Patch = patch
}

// add adds a change to the answer. It returns nil if the change does not fit into the memory budget.
func (c *comparison) add(e *entry) *change {
	size := len(e.info.Path) + len(e.info.Target)
	if len(c.changes) == maxChanges || c.names+size > maxNames || len(e.info.Path) > hutch.MaxPath || len(e.info.Target) > hutch.MaxPath {
		c.truncated = true
		return nil
	}
	c.names += size
	x := &change{}
	c.changes[e.key] = x
	return x
}

func (c *comparison) result() hutch.SnapshotDiff {
	d := hutch.SnapshotDiff{Files: []hutch.FileChange{}, Truncated: c.truncated}
	for k, now := range c.after {
		switch was, there := c.before[k]; {
		case !there:
			d.Added++
		case was != now:
			d.Changed++
		}
	}
	for k := range c.before {
		if _, there := c.after[k]; !there {
			d.Deleted++
		}
	}
	all := slices.SortedFunc(maps.Values(c.changes), func(a, b *change) int { return strings.Compare(a.Path(), b.Path()) })
	for _, x := range all {
		if x.Kind == hutch.AddedFile && c.Text && x.After.Type == hutch.RegularFile {
			c.compareTexts(x, content{}, x.text)
		}
		d.Files = append(d.Files, x.FileChange)
	}
	return d
}

// scan reads an archive. It puts the states of its files into known, and calls note for each. If known is nil, this is
// the third pass, which reads only the texts that it needs.
func (c *comparison) scan(ctx context.Context, a Archive, known states, note func(*entry)) error {
	return a.Read(ctx, func(r io.Reader) error {
		s := scan{comparison: c, ctx: ctx, of: a, known: known, left: a.Most, buffer: make([]byte, 64<<10)}
		s.in = tar.NewReader(&s)
		s.raw = r
		for {
			h, err := s.in.Next()
			if errors.Is(err, io.EOF) {
				_, err = io.Copy(io.Discard, &s) // reads the rest, so that the writer can finish
				return s.explain(err)
			}
			if err != nil {
				return s.explain(err)
			}
			e, err := s.entry(h)
			if err != nil {
				return s.explain(err)
			}
			if e != nil && note != nil {
				note(e)
			}
		}
	})
}

// scan is the state of reading one archive.
type scan struct {
	*comparison
	ctx    context.Context
	of     Archive
	known  states
	raw    io.Reader
	in     *tar.Reader
	left   int64 // bytes of content that are still allowed
	buffer []byte
}

// Read reads the archive as long as the context lasts.
func (s *scan) Read(p []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	return s.raw.Read(p)
}

// explain turns an error of a reader into one for the caller.
func (s *scan) explain(err error) error {
	if err == nil || s.ctx.Err() != nil {
		return cmp.Or(context.Cause(s.ctx), err)
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the files of %s cannot be read: they are not a whole tar archive", s.of.Name).Because(err)
}

// entry reads one file; it returns nil for a file that is not compared.
func (s *scan) entry(h *tar.Header) (*entry, error) {
	name := path.Clean("/" + h.Name)
	if h.Typeflag == tar.TypeXGlobalHeader || name == "/" || !s.within(name) {
		return nil, nil
	}
	e := &entry{key: keyOf(name), info: hutch.FileInfo{
		Path: name, Name: path.Base(name), Size: 0, Mode: hutch.FileMode(h.Mode & 0o7777), UID: h.Uid, GID: h.Gid, Modified: h.ModTime.UTC(),
	}}
	e.state = state{mode: e.info.Mode, uid: h.Uid, gid: h.Gid, kind: other}
	var err error
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		e.kind = regular
		err = s.content(e, h)
	case tar.TypeLink:
		err = s.link(e, h)
	case tar.TypeDir:
		e.kind = directory
	case tar.TypeSymlink:
		e.kind, e.info.Target, e.digest = symlink, h.Linkname, sha256.Sum256([]byte(h.Linkname))
	}
	e.info.Type, e.info.Size = types[e.kind], e.size
	if err != nil || s.known == nil {
		return e, err
	}
	return e, s.remember(e)
}

// within reports whether a path must be compared.
func (s *scan) within(name string) bool {
	return s.Path == "" || s.Path == "/" || name == s.Path || strings.HasPrefix(name, s.Path+"/")
}

// remember keeps the state of a file.
func (s *scan) remember(e *entry) error {
	if _, twice := s.known[e.key]; !twice {
		const step = 1024
		if len(s.known) == maxFiles {
			return hutch.Errorf(hutch.Exhausted, "%s has more than %d files, the most that are compared: name a folder with path", s.of.Name, maxFiles).With("limit", "files")
		}
		if len(s.known)%step == 0 && s.Take != nil && !s.Take(step*aFile) {
			return hutch.Errorf(hutch.Exhausted, "the server has no memory left to compare so many files: name a folder with path, or try again later").With("limit", "memory of the server")
		}
	}
	s.known[e.key] = e.state
	return nil
}

// link gives a hard link the content and attributes of its target, which must come earlier in the archive.
func (s *scan) link(e *entry, h *tar.Header) error {
	target := path.Clean("/" + h.Linkname)
	e.content.none = hutch.LinkedFile
	e.kind = regular
	if s.known == nil { // the first pass has done it
		e.kind = s.before[e.key].kind
		return nil
	}
	if !s.within(target) {
		return hutch.Errorf(hutch.Conflict, "%.200q in %s is another name of %.200q, which is not below %.200q: compare without path", e.info.Path, s.of.Name, target, s.Path)
	}
	first, ok := s.known[keyOf(target)]
	if !ok { // no program that packs files writes such a link
		first = e.state
		first.digest = sha256.Sum256([]byte(target))
	}
	e.state = first
	e.info.Mode, e.info.UID, e.info.GID = first.mode, first.uid, first.gid
	return nil
}

// content reads a regular file.
func (s *scan) content(e *entry, h *tar.Header) error {
	e.size = h.Size
	if s.known == nil && !s.wantsText(e.key) {
		return nil
	}
	if s.left -= h.Size; h.Size < 0 || s.left < 0 {
		return hutch.Errorf(hutch.Exhausted, "the files of %s are larger than its disk limit, as holes in files count too: name a folder without them with path", s.of.Name).With("limit", "disk")
	}
	hash, text := sha256.New(), []byte(nil)
	keeps := s.Text && h.Size <= hutch.MaxPatchedFile
	if s.Text && !keeps {
		e.content.none = hutch.LargeFile
	}
	for {
		if err := context.Cause(s.ctx); err != nil { // in a hole, no read of the source ends the loop
			return err
		}
		n, err := s.in.Read(s.buffer)
		hash.Write(s.buffer[:n])
		if keeps {
			text = append(text, s.buffer[:n]...)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	hash.Sum(e.digest[:0])
	if keeps && (!utf8.Valid(text) || slices.Contains(text, 0)) {
		e.content.none = hutch.BinaryFile
	} else if keeps {
		e.content.text = string(text)
	}
	return nil
}
