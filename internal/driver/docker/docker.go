package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/ctxlock"
	"hutch/internal/driver"
)

// Driver creates instances. It implements driver.Driver.
type Driver struct {
	dir    string // absolute
	owner  string // identifies dir in names
	agent  string
	api    *client.Client
	noAPI  error         // the reason why api cannot be used
	root   bool          // this process can enter the namespaces of containers
	images ctxlock.Locks // by the name of the image: only one caller at a time imports it
}

var _ driver.Driver = (*Driver)(nil)

// These are labels of the driver's objects in the engine.
const (
	folderLabel   = "hutch.folder"   // label of a container: the state folder of the driver
	sandboxLabel  = "hutch.sandbox"  // label of a container: the id of the instance
	skeletonLabel = "hutch.skeleton" // label of an image: the folder that it was made from
)

// New returns a driver on its state folder, for the engine of DOCKER_HOST. It makes no connection.
func New(opt driver.Options) (*Driver, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}
	agent, err := filepath.Abs(opt.Agent)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir))
	d := &Driver{dir: dir, owner: hex.EncodeToString(sum[:6]), agent: agent, root: os.Geteuid() == 0}
	d.api, d.noAPI = client.New(client.FromEnv)
	if d.noAPI == nil && !strings.HasPrefix(d.api.DaemonHost(), "unix://") {
		d.noAPI = fmt.Errorf("DOCKER_HOST is %s: the Docker engine has to be on this host, behind a unix socket", d.api.DaemonHost())
	}
	return d, nil
}

// Name is "docker".
func (d *Driver) Name() string { return "docker" }

// Defaults implements driver.Driver.
func (d *Driver) Defaults() driver.Defaults {
	usual := driver.Usual
	usual.FilesInMemory = true
	usual.CreateTime += importTime
	return usual
}

// engine returns the client, if there is one.
func (d *Driver) engine() (*client.Client, error) {
	if d.noAPI != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the Docker engine cannot be used: correct DOCKER_HOST, such as unix:///var/run/docker.sock").Because(d.noAPI)
	}
	return d.api, nil
}

// ours selects the containers that this driver has made.
func (d *Driver) ours() client.Filters {
	return client.Filters{}.Add("label", folderLabel+"="+d.dir)
}

func (d *Driver) container(id string) string { return "hutch-" + d.owner + "-" + id }
