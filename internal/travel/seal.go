package travel

import (
	"bufio"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/chacha20poly1305"

	"hutch"
)

// An image is a random salt followed by pieces, each encrypted and authenticated separately, so that a reader never
// sees an unverified byte. The key of an image is derived from the fleet's key, the salt and the sandbox's name: an
// image cannot be opened as that of another sandbox. The nonce of a piece contains its number and whether it is the
// last, so pieces cannot be left out, exchanged or cut off at the end.
const (
	saltSize  = 32
	pieceSize = 256 << 10
)

// ErrForged is the error for an image that was not written by this fleet for this sandbox, or was changed.
var ErrForged = hutch.Errorf(hutch.Denied, "the image of this sandbox in the bucket was not written by this fleet, or was changed since: nothing of it was used; restore the object in the bucket from a copy")

func newAEAD(key, salt []byte, of string) (cipher.AEAD, error) {
	own, err := hkdf.Key(sha256.New, key, salt, "hutch sleeping sandbox\x00"+of, chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	return chacha20poly1305.New(own)
}

func nonce(number uint64, last bool) []byte {
	n := make([]byte, chacha20poly1305.NonceSize)
	binary.BigEndian.PutUint64(n, number)
	if last {
		n[11] = 1
	}
	return n
}

// sealer encrypts the data written to it.
type sealer struct {
	w      io.Writer
	aead   cipher.AEAD
	number uint64
	piece  []byte
}

func newSealer(w io.Writer, key []byte, of string) (*sealer, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	aead, err := newAEAD(key, salt, of)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(salt)
	return &sealer{w: w, aead: aead, piece: make([]byte, 0, pieceSize+chacha20poly1305.Overhead)}, err
}

func (s *sealer) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		if len(s.piece) == pieceSize { // this piece is not the last
			if err := s.flush(false); err != nil {
				return n, err
			}
		}
		part := min(len(b), pieceSize-len(s.piece))
		s.piece = append(s.piece, b[:part]...)
		b, n = b[part:], n+part
	}
	return n, nil
}

// Close writes the last piece.
func (s *sealer) Close() error { return s.flush(true) }

func (s *sealer) flush(last bool) error {
	_, err := s.w.Write(s.aead.Seal(s.piece[:0], nonce(s.number, last), s.piece, nil))
	s.piece = s.piece[:0]
	s.number++
	return err
}

// opener decrypts and verifies a sealer's output.
type opener struct {
	r      *bufio.Reader
	aead   cipher.AEAD
	number uint64
	piece  []byte
	rest   []byte // rest of the piece, for the next Read
	ended  bool
}

func newOpener(r io.Reader, key []byte, of string) (*opener, error) {
	in := bufio.NewReaderSize(r, pieceSize+chacha20poly1305.Overhead+1)
	salt := make([]byte, saltSize)
	if _, err := io.ReadFull(in, salt); err != nil {
		return nil, cut(err)
	}
	aead, err := newAEAD(key, salt, of)
	return &opener{r: in, aead: aead, piece: make([]byte, pieceSize+chacha20poly1305.Overhead)}, err
}

func (o *opener) Read(b []byte) (int, error) {
	for len(o.rest) == 0 {
		if o.ended {
			return 0, io.EOF
		}
		if err := o.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

func (o *opener) next() error {
	n, err := io.ReadFull(o.r, o.piece)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return cut(err)
	}
	last := err != nil
	if !last {
		_, end := o.r.Peek(1)
		if last = errors.Is(end, io.EOF); end != nil && !last {
			return end
		}
	}
	o.rest, err = o.aead.Open(o.piece[:0], nonce(o.number, last), o.piece[:n], nil)
	if err != nil {
		return ErrForged
	}
	o.number++
	o.ended = last
	return nil
}

// cut returns the error for an image that ends too early; errors of the network are returned unchanged.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrForged
	}
	return fmt.Errorf("read from the bucket: %w", err)
}
