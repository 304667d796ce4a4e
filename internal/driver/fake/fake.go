// Package fake is a driver without isolation: an instance is a folder, and the real agent runs in this process. It makes
// tests of the engine fast, and can inject faults that no test could cause in a real runtime. Only tests can choose
// it.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"hutch"
	"hutch/internal/agent"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// Faults are functions that make steps fail. A nil function causes no failure.
type Faults struct {
	Create  func(id string) error // before anything is made
	Dial    func(id string) error
	Destroy func(id string) error // before anything is removed
	Usage   func(id string) (driver.Usage, error)
	Archive func(id string) error // before anything is written
	// Converse, if set, answers every connection in place of the agent.
	Converse func(id string, conn net.Conn)
	// Through, if set, wraps the connection to the agent: it returns the connection that the engine gets.
	Through func(id string, conn net.Conn) net.Conn
}

// Driver creates instances. They live as long as this process, not as long as the engine: a new engine on this driver
// finds them again.
type Driver struct {
	dir string
	tar func() error // writes the tar program, once

	mu        sync.Mutex
	faults    Faults
	instances map[string]*instance
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver whose instances are stored in dir, which must exist.
func New(dir string) *Driver {
	return &Driver{dir: dir, tar: sync.OnceValue(func() error { return writeTar(dir) }), instances: map[string]*instance{}}
}

// Break replaces the faults.
func (d *Driver) Break(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
}

func (d *Driver) plan() Faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults
}

// Kill ends an instance as a crash would, without the knowledge of the engine.
func (d *Driver) Kill(id string) {
	d.mu.Lock()
	p := d.instances[id]
	d.mu.Unlock()
	if p != nil {
		p.end()
	}
}

func (d *Driver) Name() string { return "fake" }

// Defaults implements driver.Driver.
func (d *Driver) Defaults() driver.Defaults { return driver.Usual }

func (d *Driver) Check(context.Context) driver.Report {
	return driver.Report{OK: true, Findings: []driver.Finding{{Name: "isolation", Level: driver.Warning, Detail: "none: only for tests"}}}
}

func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if f := d.plan().Create; f != nil {
		if err := f(spec.ID); err != nil {
			return nil, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if spec.Root.EROFS != "" {
		return nil, hutch.Errorf(hutch.Unsupported, "the runtime %s can only use the image \"host\": choose another runtime for this image", d.Name())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.instances[spec.ID] != nil {
		return nil, hutch.Errorf(hutch.Conflict, "there is an instance %q already", spec.ID)
	}
	p, err := d.build(spec)
	if err != nil {
		return nil, err
	}
	d.instances[spec.ID] = p
	return p, nil
}

func (d *Driver) build(spec driver.Spec) (*instance, error) {
	home := filepath.Join(d.dir, spec.ID)
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the path of a Unix socket can be too long
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(home))
	}
	if err := d.linkTar(home); err != nil {
		return nil, errors.Join(err, ln.Close(), os.RemoveAll(home))
	}
	boot := spec.Boot
	boot.Version, boot.UID, boot.GID = wire.Version, os.Getuid(), os.Getgid()
	boot.Home, boot.Dir = home, home
	boot.Env = append(boot.Env[:len(boot.Env):len(boot.Env)], "HOME="+home, "PATH="+filepath.Join(home, tools)+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(context.Background())
	p := &instance{driver: d, id: spec.ID, dir: home, address: ln.Addr().String(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		agent.Serve(ctx, ln, boot, agent.Options{})
	}()
	return p, nil
}

const tools = ".tools"

// linkTar gives an instance the tar program of the driver.
func (d *Driver) linkTar(home string) error {
	if err := d.tar(); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(home, tools), 0o700); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(d.dir, tools, "tar"), filepath.Join(home, tools, "tar"))
}

// writeTar writes the tar program of all instances. The engine saves a sandbox's files with the tar inside, which must
// not touch the host's files. So this tar knows only the folder of the instance that calls it.
//
// It is written once, before anything runs. The kernel refuses to execute a file that any process has open for writing,
// and a new child process has the file open until it executes its program.
func writeTar(dir string) error {
	real, err := exec.LookPath("tar")
	if err != nil {
		return err
	}
	script := fmt.Sprintf(`#!/bin/sh
home=${0%%/*}/..
case "$1" in
--create) exec %[1]s --create --file=- --exclude=./%[2]s --directory="$home" . ;;
--extract) exec %[1]s --extract --file=- --directory="$home" ;;
esac
exit 2
`, real, tools)
	if err := os.MkdirAll(filepath.Join(dir, tools), 0o700); err != nil {
		return err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(filepath.Join(dir, tools, "tar"), []byte(script), 0o700)
}

func (d *Driver) Recover(_ context.Context, id string, _ driver.Handle) (driver.Instance, error) {
	d.mu.Lock()
	p := d.instances[id]
	d.mu.Unlock()
	if p == nil {
		return nil, hutch.Errorf(hutch.NotFound, "there is no instance %q", id)
	}
	select {
	case <-p.done:
		return nil, errors.Join(hutch.Errorf(hutch.NotFound, "the instance %q is dead", id), p.remove())
	default:
		return p, nil
	}
}

func (d *Driver) Sweep(ctx context.Context, keep func(id string) bool) (int, error) {
	d.mu.Lock()
	var left []*instance
	for id, p := range d.instances {
		if !keep(id) {
			left = append(left, p)
		}
	}
	d.mu.Unlock()
	for n, p := range left {
		if err := p.Destroy(ctx); err != nil {
			return n, err
		}
	}
	return len(left), nil
}

// instance is a folder and an agent.
type instance struct {
	driver  *Driver
	id      string
	dir     string
	address string
	cancel  context.CancelFunc
	done    chan struct{}
}

// ID implements driver.Instance.
func (p *instance) ID() string { return p.id }

func (p *instance) Handle() driver.Handle {
	h, _ := json.Marshal(p.id) // a string can always be encoded
	return h
}

func (p *instance) Dial(ctx context.Context) (net.Conn, error) {
	faults := p.driver.plan()
	if faults.Dial != nil {
		if err := faults.Dial(p.id); err != nil {
			return nil, err
		}
	}
	if faults.Converse != nil {
		ours, theirs := net.Pipe()
		go faults.Converse(p.id, theirs)
		return ours, nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err == nil && faults.Through != nil {
		c = faults.Through(p.id, c)
	}
	return c, err
}

func (p *instance) Usage(context.Context) (driver.Usage, error) {
	if f := p.driver.plan().Usage; f != nil {
		return f(p.id)
	}
	return driver.Usage{PIDs: 1}, nil
}

func (p *instance) Done() <-chan struct{} { return p.done }

func (p *instance) Destroy(context.Context) error {
	if f := p.driver.plan().Destroy; f != nil {
		if err := f(p.id); err != nil {
			return err
		}
	}
	p.end()
	return p.remove()
}

// Archive implements driver.Archiver.
func (p *instance) Archive(ctx context.Context, w io.Writer) error {
	if f := p.driver.plan().Archive; f != nil {
		if err := f(p.id); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, tools, "tar"), "--create")
	cmd.Stdout = w
	return cmd.Run()
}

// end stops the agent and waits until everything that it ran has ended.
func (p *instance) end() {
	p.cancel()
	<-p.done
}

func (p *instance) remove() error {
	d := p.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.instances[p.id] != p {
		return nil // already destroyed; a successor can have the name
	}
	delete(d.instances, p.id)
	return os.RemoveAll(p.dir)
}
