package rootfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/erofs/go-erofs"
)

// A file of many layers can be made from a finished file of the first ones, its base: names and contents come from
// there, and only the other layers are decompressed. The result has the same bytes as one that is made of all layers.
//
// For that, every file ends with a block after its EROFS, the seal. It says how much of the limits the layers used, so
// that they count in files made from it. It also has the digest of everything before it. A base replaces layers whose
// digests were checked, so a file that the disk has changed must not be used.

var (
	ErrDamaged  = errors.New("the file has other content than what was written") // the disk has changed it
	ErrUnsealed = errors.New("the file has no seal")                             // an earlier version wrote it
)

// seal is the last block of a file.
type seal struct {
	Magic [8]byte
	Used  used
	_     [blockSize - 8 - 4*8 - sha256.Size]byte
	Sum   [sha256.Size]byte // of everything before it
}

var sealMagic = [8]byte([]byte("hutch\x00\x00\x01"))

// used is how much of the limits the layers of a file used.
type used struct{ Tar, Files, Names, Entries int64 }

func (t *tree) used() used {
	l := t.limits
	return used{l.Bytes - t.tarLeft, l.Bytes - t.bytesLeft, l.Names - t.namesLeft, int64(l.Entries - t.entriesLeft)}
}

// writeSeal appends the seal to an EROFS file.
func writeSeal(ctx context.Context, out *os.File, u used) error {
	info, err := out.Stat()
	if err != nil {
		return err
	}
	block := encodeSeal(seal{Magic: sealMagic, Used: u})
	sum, err := sumOf(ctx, out, info.Size(), block)
	if err != nil {
		return err
	}
	copy(block[blockSize-sha256.Size:], sum)
	_, err = out.WriteAt(block, info.Size())
	return err
}

func encodeSeal(s seal) []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, s) // a buffer never fails
	return b.Bytes()
}

// readSeal checks a whole file against its seal.
func readSeal(ctx context.Context, f *os.File) (used, error) {
	info, err := f.Stat()
	if err != nil {
		return used{}, err
	}
	size, block := info.Size()-blockSize, make([]byte, blockSize)
	if size < blockSize {
		return used{}, ErrUnsealed
	}
	if _, err := f.ReadAt(block, size); err != nil {
		return used{}, err
	}
	var s seal
	if err := binary.Read(bytes.NewReader(block), binary.LittleEndian, &s); err != nil {
		return used{}, err
	}
	if s.Magic != sealMagic {
		return used{}, ErrUnsealed
	}
	sum, err := sumOf(ctx, f, size, block)
	if err == nil && !bytes.Equal(sum, s.Sum[:]) {
		err = ErrDamaged
	}
	return s.Used, err
}

// sumOf returns the digest of an EROFS file, whose length is size, and of its seal without the digest in it.
func sumOf(ctx context.Context, f *os.File, size int64, block []byte) ([]byte, error) {
	sum := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, &counter{ctx: ctx, r: io.NewSectionReader(f, 0, size)}, make([]byte, bufferSize))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	sum.Write(block[:blockSize-sha256.Size])
	return sum.Sum(nil), err
}

// addBase puts the files of a base into an empty tree. It returns an error if the base cannot be used.
func (t *tree) addBase(ctx context.Context, base *os.File) error {
	u, err := readSeal(ctx, base)
	if err != nil {
		return err
	}
	t.tarLeft -= u.Tar
	t.bytesLeft -= u.Files
	t.namesLeft -= u.Names
	t.entriesLeft -= int(u.Entries)
	if min(t.tarLeft, t.bytesLeft) < 0 {
		return tooManyBytes(t.limits.Bytes)
	}
	root, err := erofs.Open(base)
	if err != nil {
		return err
	}
	folders := map[string]*node{".": t.root}
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		i, err := baseInode(root, base, name, d)
		if err != nil || name == "." {
			t.root.inode = i
			return err
		}
		n := newNode(path.Base(name), i)
		folders[path.Dir(name)].children[n.name] = n
		if d.IsDir() {
			folders[name] = n
		}
		return nil
	})
}

// baseInode describes a file of a base.
func baseInode(root fs.FS, base *os.File, name string, d fs.DirEntry) (*inode, error) {
	info, err := d.Info()
	if err != nil {
		return nil, err
	}
	st := info.Sys().(*erofs.Stat)
	i := &inode{mode: st.Mode, uid: st.UID, gid: st.GID, mtime: time.Unix(int64(st.Mtime), int64(st.MtimeNs))}
	switch {
	case i.mode&fs.ModeSymlink != 0:
		i.target, err = fs.ReadLink(root, name)
	case i.mode.IsRegular() && info.Size() > 0:
		at := info.(interface{ DataRange() []erofs.DataRange }).DataRange()
		if len(at) != 1 || at[0].Size != info.Size() {
			return nil, fmt.Errorf("the content of %q in the base has %d parts, and not one", name, len(at))
		}
		i.in, i.offset, i.size = base, at[0].Offset, at[0].Size
	}
	return i, err
}
