package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/oci/registry"
)

// transfer fetches the blobs of one image.
type transfer struct {
	s      *Store
	repo   *registry.Repository
	owner  string
	report func(Progress)
}

// errBroken is the error for a stream that ended too early.
var errBroken = hutch.Errorf(hutch.Unavailable, "the registry broke off in the middle of a layer: pull the image again, and what is there is kept")

func wrongContent(digest string) error {
	return hutch.Errorf(hutch.Invalid, "what the registry sent is not %s: the registry lies, or something on the way changes what it sends", digest)
}

// retry tries again when the registry or the network was at fault.
func (t *transfer) retry(ctx context.Context, do func() error) error {
	for _, pause := range pauses {
		err := do()
		if err == nil || ctx.Err() != nil || hutch.KindOf(err) != hutch.Unavailable {
			return err
		}
		if err := delay.Wait(ctx, pause); err != nil {
			return err
		}
	}
	return do()
}

// readExactly reads a body that must have this length.
func readExactly(r io.Reader, size int64) ([]byte, error) {
	content := make([]byte, size)
	if _, err := io.ReadFull(r, content); err != nil {
		return nil, broken(err)
	}
	return content, nil
}

// broken returns the error to show for an error in reading a body.
func broken(err error) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return errBroken.Because(err)
}

// part is the part of a layer that was received.
type part struct {
	*os.File
	sum  hash.Hash
	have int64
}

// openPartial continues an earlier pull of the owner with the bytes that it received.
func (s *Store) openPartial(name string, size int64) (*part, error) {
	f, err := os.OpenFile(s.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &part{File: f, sum: sha256.New()}
	if p.have, err = io.Copy(p.sum, f); err == nil && p.have > size {
		err = p.clear()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// clear deletes the received bytes.
func (p *part) clear() error {
	p.sum.Reset()
	p.have = 0
	_, err := p.Seek(0, io.SeekStart)
	return errors.Join(err, p.Truncate(0))
}

func (p *part) Write(b []byte) (int, error) {
	n, err := p.File.Write(b)
	p.sum.Write(b[:n])
	p.have += int64(n)
	return n, err
}

func (p *part) digest() string { return "sha256:" + hex.EncodeToString(p.sum.Sum(nil)) }

// layer makes one layer present.
func (t *transfer) layer(ctx context.Context, l Layer) error {
	name := filepath.Join(partialDir, ownerHash(t.owner)+"-"+strings.TrimPrefix(l.Digest, "sha256:"))
	if err := t.s.receiving.Take(ctx, name); err != nil {
		return err
	}
	defer t.s.receiving.Put(name)
	if t.s.holds(t.owner, l.Digest, l.Size) {
		t.report(Progress{l.Digest, l.Size, l.Size, "present"})
		return nil
	}
	p, err := t.s.openPartial(name, l.Size)
	if err != nil {
		return t.s.explained(err)
	}
	defer p.Close()
	resumed := p.have > 0
	err = t.receive(ctx, p, l)
	if err == nil && p.digest() != l.Digest && resumed { // the earlier bytes can be damaged
		if err = p.clear(); err == nil {
			err = t.receive(ctx, p, l)
		}
	}
	if err != nil {
		return t.s.explained(err)
	}
	if p.digest() != l.Digest {
		os.Remove(p.Name())
		return wrongContent(l.Digest)
	}
	if err := errors.Join(p.Sync(), t.s.rename(p.Name(), blobFile(l.Digest))); err != nil {
		return t.s.explained(err)
	}
	t.report(Progress{l.Digest, l.Size, l.Size, "done"})
	return nil
}

// receive fetches the rest of a layer, over as many connections as necessary.
func (t *transfer) receive(ctx context.Context, p *part, l Layer) error {
	return t.retry(ctx, func() error {
		if p.have == l.Size {
			return nil
		}
		body, start, err := t.repo.Blob(ctx, l.Digest, p.have)
		if err != nil {
			return err
		}
		defer body.Close()
		if _, err := io.CopyN(io.Discard, body, p.have-start); err != nil {
			return broken(err)
		}
		return t.copyBody(p, body, l)
	})
}

// copyBody writes a body to a part. An error of the network becomes errBroken; an error of the disk is returned as it
// is.
func (t *transfer) copyBody(p *part, body io.Reader, l Layer) error {
	buffer, told := make([]byte, 256<<10), time.Time{}
	for p.have < l.Size {
		n, err := body.Read(buffer[:min(int64(len(buffer)), l.Size-p.have)])
		if _, disk := p.Write(buffer[:n]); disk != nil {
			return disk
		}
		if time.Since(told) > reportEvery {
			told = time.Now()
			t.report(Progress{l.Digest, p.have, l.Size, "downloading"})
		}
		if err != nil && p.have < l.Size {
			return broken(err)
		}
	}
	return nil
}

// reportEvery is how often progress is reported.
const reportEvery = 100 * time.Millisecond
