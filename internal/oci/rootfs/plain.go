package rootfs

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"

	"github.com/erofs/go-erofs"
)

// The writer of EROFS puts the contents of a small file next to its inode. A file of a whole block gets a block, so
// small files are given to the writer as one block, with zeros at their end, and get their size back when the file is
// written.
const blockSize = 4096

// shownSize returns the size of a file as the writer sees it.
func shownSize(n *node) int64 {
	if n.mode.IsRegular() && n.size > 0 && n.size < blockSize {
		return blockSize
	}
	return n.size
}

// zeros is a reader of zero bytes without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// The positions in EROFS that restoreSizes needs.
const (
	metaBlock  = 1024 + 40 // position in the file of the number of the block at which inodes begin
	inodeSlot  = 32        // the number of an inode counts steps of this many bytes
	inodeSize  = 8         // position of the file's size in an inode
	isExtended = 1         // the bit of an inode's first byte that is set if the size has 8 bytes instead of 4
)

// restoreSizes writes the sizes of small files into their inodes.
func restoreSizes(ctx context.Context, out *os.File, t *tree) error {
	root, err := erofs.Open(out)
	if err != nil {
		return err
	}
	var block [4]byte
	if _, err := out.ReadAt(block[:], metaBlock); err != nil {
		return err
	}
	inodes := int64(binary.LittleEndian.Uint32(block[:])) * blockSize
	return fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
		n, err := files{t}.node("stat", path)
		if err != nil || shownSize(n) == n.size {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return restoreSize(out, inodes+info.Sys().(*erofs.Stat).Ino*inodeSlot, n.size)
	})
}

func restoreSize(out *os.File, inode, size int64) error {
	var head [16]byte
	if _, err := out.ReadAt(head[:], inode); err != nil {
		return err
	}
	field := head[inodeSize:]
	if head[0]&isExtended == 0 {
		field = field[:4]
	}
	if has := binary.LittleEndian.Uint32(field); has != blockSize {
		return fmt.Errorf("the inode at %d is of a file of %d bytes, and not of one block", inode, has)
	}
	binary.LittleEndian.PutUint32(field, uint32(size))
	_, err := out.WriteAt(field, inode+inodeSize)
	return err
}
