package patch

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxBinary bounds the size of a file that is not text. Otherwise a few bytes of a diff could become gigabytes.
const maxBinary = 64 << 20

var (
	errDiffers = errors.New("its content is not what the agent began with")
	errBroken  = errors.New("the change is damaged")
)

// binary is the change of a file that is not text: its new content, or instructions that make it from the old content.
type binary struct {
	packed []byte // compressed with zlib
	size   int    // size of the uncompressed data
	delta  bool
}

// binary reads the forward change, and skips the backward one that git adds.
func (r *reader) binary() (*binary, error) {
	forward, err := r.piece()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(r.peek(), "literal ") || strings.HasPrefix(r.peek(), "delta ") {
		if _, err := r.piece(); err != nil {
			return nil, err
		}
	}
	return forward, nil
}

func (r *reader) piece() (*binary, error) {
	kind, size, _ := strings.Cut(strings.TrimSuffix(r.take(), "\n"), " ")
	n, err := strconv.Atoi(size)
	if kind != "literal" && kind != "delta" || err != nil || n < 0 {
		return nil, r.refuse("the head of a binary change is not understood")
	}
	if n > maxBinary {
		return nil, r.refuse("a binary change has %d bytes, over the limit of %d: copy that file with `hutch cp`", n, maxBinary)
	}
	b := &binary{size: n, delta: kind == "delta"}
	for {
		line := strings.TrimSuffix(r.take(), "\n")
		if line == "" {
			return b, nil
		}
		if b.packed, err = unarmour(b.packed, line); err != nil {
			return nil, r.refuse("%v", err)
		}
	}
}

const digits85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// unarmour appends the bytes of one line in base 85. The first letter of the line encodes their number.
func unarmour(to []byte, line string) ([]byte, error) {
	length, digits := 0, line[1:]
	switch c := line[0]; {
	case 'A' <= c && c <= 'Z':
		length = int(c-'A') + 1
	case 'a' <= c && c <= 'z':
		length = int(c-'a') + 27
	}
	if length == 0 || len(digits)%5 != 0 || len(digits)/5 != (length+3)/4 {
		return to, errBroken
	}
	for ; digits != ""; digits = digits[5:] {
		var v uint64
		for _, d := range []byte(digits[:5]) {
			i := strings.IndexByte(digits85, d)
			if i < 0 {
				return to, errBroken
			}
			v = v*85 + uint64(i)
		}
		if v > 1<<32-1 {
			return to, errBroken
		}
		four := []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
		to = append(to, four[:min(4, length)]...)
		length -= 4
	}
	return to, nil
}

// change returns the new content.
func (b *binary) change(old []byte) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(b.packed))
	if err != nil {
		return nil, errBroken
	}
	data, err := io.ReadAll(io.LimitReader(z, int64(b.size)+1))
	switch {
	case err != nil || len(data) != b.size:
		return nil, errBroken
	case !b.delta:
		return data, nil
	}
	return follow(data, old)
}

// follow makes the new content by git's instructions: first the sizes of both contents, then parts of the old content
// to copy, and new bytes.
func follow(delta, old []byte) ([]byte, error) {
	from, delta, ok1 := varint(delta)
	size, delta, ok2 := varint(delta)
	switch {
	case !ok1 || !ok2 || size > maxBinary:
		return nil, errBroken
	case from != len(old):
		return nil, errDiffers
	}
	out := make([]byte, 0, min(size, 1<<20))
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var piece []byte
		switch {
		case op&0x80 != 0:
			at, length, rest, ok := span(op, delta)
			if !ok || at+length > len(old) {
				return nil, errBroken
			}
			piece, delta = old[at:at+length], rest
		case op == 0 || int(op) > len(delta):
			return nil, errBroken
		default:
			piece, delta = delta[:op], delta[op:]
		}
		if len(out)+len(piece) > size {
			return nil, errBroken
		}
		out = append(out, piece...)
	}
	if len(out) != size {
		return nil, errBroken
	}
	return out, nil
}

// span reads the offset and the length of a copy. Each of the low seven bits of op says whether one byte of these two
// numbers follows.
func span(op byte, b []byte) (at, length int, rest []byte, ok bool) {
	for i := range 7 {
		if op&(1<<i) == 0 {
			continue
		}
		if len(b) == 0 {
			return 0, 0, nil, false
		}
		if i < 4 {
			at |= int(b[0]) << (8 * i)
		} else {
			length |= int(b[0]) << (8 * (i - 4))
		}
		b = b[1:]
	}
	if length == 0 {
		length = 0x10000
	}
	return at, length, b, true
}

func varint(b []byte) (n int, rest []byte, ok bool) {
	for shift := 0; len(b) > 0 && shift <= 28; shift += 7 {
		n |= int(b[0]&0x7f) << shift
		if b[0]&0x80 == 0 {
			return n, b[1:], true
		}
		b = b[1:]
	}
	return 0, nil, false
}
