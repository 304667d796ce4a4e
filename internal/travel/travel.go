// Package travel moves a sleeping sandbox from one machine to another, as an image, which is one object in a bucket.
//
// An image is compressed and encrypted, and can be opened only under the name for which it was written: see seal.go.
// The writer keeps the image's SHA-256 outside of the bucket, so an older image of the same sandbox is refused, too.
// The image does not contain the record of the sandbox.
package travel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"hutch"
	"hutch/internal/objects"
)

// Image describes where an image is, and how to verify it.
type Image struct {
	Key    string `json:"key"`
	SHA256 string `json:"sha256"` // SHA-256 of the object in the bucket
	Size   int64  `json:"size"`   // size of the object, in bytes
	// RecordKey is the key of the sandbox's record in the store. The image opens only under this key. The field's JSON
	// name is different, because stored records have it.
	RecordKey string `json:"place"`
	Needs     Needs  `json:"needs"`
	// Checkpoint is when the image was made, if the sandbox kept running; zero for an image of a sleeping sandbox.
	Checkpoint time.Time `json:"checkpoint,omitzero"`
}

// Arrival is a sandbox that is arriving at a machine. The machine keeps the Arrival on disk while it has the sandbox's
// files and does not know whether the sandbox has moved to it.
type Arrival struct {
	Owner     string `json:"owner,omitempty"`
	Sandbox   string `json:"sandboxId"`
	RecordKey string `json:"record"` // the key of the sandbox's record in the store; package engine sets it
	From      string `json:"from"`   // the node that the sandbox comes from, or that should have fetched it
	Image     string `json:"image"`  // the key of its image in the bucket
	// Checkpoint is when the image was made, if the sandbox kept running; zero for an image of a sleeping sandbox.
	Checkpoint time.Time `json:"checkpoint,omitzero"`
}

// ErrUndecided is the error for a sandbox whose files are on a machine, if it is not known whether the sandbox has
// moved there.
var ErrUndecided = errors.New("the files of the sandbox are kept until it is known which node has it")

// ErrBadNote is the error for the note of an arrival that cannot be read.
var ErrBadNote = errors.New("the note of a sandbox that came from another node cannot be read")

// Activity is how much a sandbox had done at a checkpoint. If a later Activity is the same, nothing has changed in the
// sandbox.
type Activity struct {
	Used time.Time // when the sandbox was last used
	CPU  float64   // seconds
	Of   string    // the instance whose CPU is counted
	At   time.Time // time of the checkpoint
}

// Needs are the requirements of an image on the machine where it wakes.
type Needs struct {
	Runtime string   `json:"runtime"`
	Build   string   `json:"build,omitempty"` // build of the runtime; empty when no memory was saved
	Host    string   `json:"host,omitempty"`  // name of the host's programs, if the memory uses them
	CPU     []string `json:"cpu,omitempty"`   // features that programs have detected
}

// Machine has the properties of a machine that are compared with Needs.
type Machine struct {
	Builds map[string]string `json:"builds"` // builds of its runtimes, by name; empty if a runtime saves no memory
	// Contracts are prefixes of build names, by runtime. The machine can use all builds with such a name once it has
	// their programs.
	Contracts map[string]string `json:"contracts,omitempty"`
	Host      string            `json:"host"`
	CPU       []string          `json:"cpu"`
	// Snapshots reports that the node can fetch snapshots from the bucket. Earlier versions of Hutch fetch only
	// sandboxes.
	Snapshots bool `json:"snapshots,omitempty"`
	// Claims reports that the node reads the whole image of a dead node's sandbox before it takes over the sandbox.
	// Earlier versions take it over first.
	Claims bool `json:"claims,omitempty"`
}

// Lacks returns an error that names the features that a machine lacks for an image; nil if it lacks none.
func (m Machine) Lacks(n Needs) error {
	build, ok := m.Builds[n.Runtime]
	contract := m.Contracts[n.Runtime]
	var missing []string
	for _, f := range n.CPU {
		if !slices.Contains(m.CPU, f) {
			missing = append(missing, f)
		}
	}
	switch {
	case !ok:
		return fmt.Errorf("it does not have the runtime %s", n.Runtime)
	case n.Build != "" && n.Build != build && (contract == "" || !strings.HasPrefix(n.Build, contract)):
		return fmt.Errorf("its programs are the build %.20s, and the memory was saved by the build %.20s: bring the nodes to one version of Hutch", build, n.Build)
	case n.Host != "" && n.Host != m.Host:
		return errors.New("its system programs, which the image host consists of, are others: update both machines to the same packages, or use an image of a registry")
	case len(missing) > 0:
		return fmt.Errorf("its processor lacks %s, which programs of the sandbox can use", strings.Join(missing[:min(len(missing), 5)], ", "))
	}
	return nil
}

// Write stores an image with the content that fill writes, and returns it with Key, SHA256 and Size. After an error it
// leaves no object. When Write returns, fill has returned. The store gets no more data when ctx is done.
func Write(ctx context.Context, s objects.Store, key []byte, name, of string, fill func(io.Writer) error) (Image, error) {
	sum := &counter{hash: sha256.New()}
	r, w := io.Pipe()
	defer context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })()
	sealed := make(chan error, 1)
	go func() {
		err := Seal(io.MultiWriter(w, sum), key, of, fill)
		w.CloseWithError(err)
		sealed <- err
	}()
	err := s.Put(ctx, name, r)
	r.CloseWithError(errors.New("the bucket takes no more")) // so that the writer ends, if Put ended first
	if failed := <-sealed; err == nil {
		err = failed
	}
	return Image{Key: name, SHA256: hex.EncodeToString(sum.hash.Sum(nil)), Size: sum.n}, err
}

// Seal writes the content that fill writes, compressed and encrypted. The content can be opened only with the same key
// and under the same name.
func Seal(w io.Writer, key []byte, of string, fill func(io.Writer) error) error {
	sealed, err := newSealer(w, key, of)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(sealed, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	return errors.Join(fill(z), z.Close(), sealed.Close())
}

// Read calls read with the content of an image, which fill wrote. Each byte is verified before it is passed on. If a
// later part fails, the caller must discard what it has read.
func Read(ctx context.Context, s objects.Store, key []byte, img Image, of string, read func(io.Reader) error) error {
	body, err := open(ctx, s, img)
	if err != nil {
		return err
	}
	defer body.Close()
	defer context.AfterFunc(ctx, func() { body.Close() })() // a store in a folder ignores ctx
	sum := &counter{hash: sha256.New()}
	all := io.TeeReader(io.LimitReader(unbroken{body}, img.Size+1), sum)
	if err := Unseal(all, key, of, read); err != nil {
		return err
	}
	return sum.check(img)
}

// Unseal calls read with the content that Seal wrote. Each byte is verified before it is passed on. If a later part
// fails, the caller must discard what it has read: Unseal succeeds only if the end is verified, too. The error for
// content that was cut off, changed or sealed with another key is ErrForged.
func Unseal(r io.Reader, key []byte, of string, read func(io.Reader) error) error {
	opened, err := newOpener(r, key, of)
	if err != nil {
		return err
	}
	z, err := zstd.NewReader(opened, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := read(z); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, z); err != nil { // reads to the end, which is verified, too
		return err
	}
	_, err = io.Copy(io.Discard, opened)
	return err
}

// ErrLost is the cause of an error for an object that the bucket no longer has.
var ErrLost = errors.New("the object does not exist")

func open(ctx context.Context, s objects.Store, img Image) (io.ReadCloser, error) {
	body, err := s.Get(ctx, img.Key)
	if errors.Is(err, fs.ErrNotExist) {
		err = hutch.Errorf(hutch.Unavailable, "the bucket has lost the image of this sandbox: restore the object %s in the bucket from a copy, or destroy the sandbox", img.Key).Because(ErrLost)
	}
	return body, err
}

// unbroken distinguishes a broken connection from an object that ends too early.
type unbroken struct{ io.Reader }

func (u unbroken) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection broke")
	}
	return n, err
}

// Check reads an object to its end, and returns an error if it is not the image.
func Check(ctx context.Context, s objects.Store, img Image) error {
	body, err := s.Get(ctx, img.Key)
	if err != nil {
		return err
	}
	defer body.Close()
	defer context.AfterFunc(ctx, func() { body.Close() })()
	sum := &counter{hash: sha256.New()}
	if _, err := io.Copy(sum, io.LimitReader(body, img.Size+1)); err != nil {
		return err
	}
	return sum.check(img)
}

type counter struct {
	hash hash.Hash
	n    int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.hash.Write(b)
}

func (c *counter) check(img Image) error {
	if c.n != img.Size || hex.EncodeToString(c.hash.Sum(nil)) != img.SHA256 {
		return ErrForged
	}
	return nil
}
