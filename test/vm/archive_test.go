//go:build vm

package vm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// archive writes a cpio archive in the kernel's format: "newc", see
// Documentation/driver-api/early-userspace/buffer-format.rst. The first error
// is kept for close.
type archive struct {
	w   *bufio.Writer
	n   int // members
	at  int // bytes written
	err error
}

// File types of stat(2).
const (
	isFolder = 0o040755
	isFile   = 0o100755
	isLink   = 0o120777
)

func newArchive(w io.Writer) *archive { return &archive{w: bufio.NewWriterSize(w, 1<<20)} }

func (a *archive) folders(names ...string) {
	for _, name := range names {
		a.member(name, isFolder, nil, 0)
	}
}

func (a *archive) link(name, to string) {
	a.member(name, isLink, strings.NewReader(to), int64(len(to)))
}

// file adds the file at path, executable by everyone.
func (a *archive) file(name, path string) {
	f, err := os.Open(path)
	if err != nil {
		a.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.fail(err)
		return
	}
	a.member(name, isFile, f, info.Size())
}

func (a *archive) member(name string, mode int, content io.Reader, size int64) {
	a.n++
	a.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.n, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	if content != nil {
		n, err := io.Copy(a.w, content)
		a.at += int(n)
		a.fail(err)
	}
	a.pad()
}

func (a *archive) close() error {
	a.member("TRAILER!!!", 0, nil, 0)
	a.fail(a.w.Flush())
	return a.err
}

func (a *archive) printf(format string, args ...any) {
	n, err := fmt.Fprintf(a.w, format, args...)
	a.at += n
	a.fail(err)
}

// pad fills up to a multiple of four.
func (a *archive) pad() { a.printf("%s", "\x00\x00\x00"[:-a.at&3]) }

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}
