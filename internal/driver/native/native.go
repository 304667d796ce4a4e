package native

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"hutch/internal/driver"
	"hutch/internal/linux/cgroup"
	"hutch/internal/linux/subid"
)

// Driver creates instances. It implements driver.Driver.
type Driver struct {
	dir    string // absolute path of the state folder
	prefix string // prefix of the names of this driver's control groups
	agent  string
	root   bool // this process is root: each instance has two ids
	// subordinate finds the ids that instances of images share if root is false.
	subordinate func() (*subid.IDs, error)
	tree        *cgroup.Tree
	noTree      error // the reason why tree is nil

	program   program
	images    imageMounts
	layerless atomic.Bool // this machine could not use a layer

	mu   sync.Mutex
	uids map[int]bool // first ids of living instances
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver on its state folder.
func New(opt driver.Options) (*Driver, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}
	agent, err := filepath.Abs(opt.Agent)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	sum := sha256.Sum256([]byte(dir))
	d := &Driver{
		dir: dir, prefix: "native-" + hex.EncodeToString(sum[:4]) + "-", agent: agent, root: os.Geteuid() == 0,
		uids: map[int]bool{},
	}
	d.subordinate = sync.OnceValues(subid.Find)
	d.tree, d.noTree = cgroup.Find()
	return d, nil
}

// Name is "native".
func (d *Driver) Name() string { return "native" }

// Defaults implements driver.Driver.
func (d *Driver) Defaults() driver.Defaults {
	usual := driver.Usual
	usual.FilesInMemory, usual.Root = true, d.canBeRoot
	return usual
}

func (d *Driver) canBeRoot() error {
	if _, err := d.imageIDs(); err != nil {
		return fmt.Errorf("the server is not root, and cannot give a sandbox subordinate ids: %w", err)
	}
	return nil
}
