// Package driver is the contract between the engine and the runtimes.
//
// A driver provides only an instance and a connection to it. The instance is isolated, is made from a root file system,
// limits and a network attachment, and has the agent as its first process. The connection leads to that agent.
// Everything inside is the agent's work (package wire), so it is written once and behaves the same on every runtime.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// Driver creates instances. Its methods are safe for concurrent use. A driver has its own state folder, where it keeps
// the data with which it finds its instances again.
type Driver interface {
	// Name is the runtime's name in the APIs: "gvisor", "native", "docker", "kubernetes".
	Name() string

	// Defaults are the defaults of an instance. They never change.
	Defaults() Defaults

	// Check checks this host: it reports what works, what does not, and the fix. It changes nothing.
	Check(ctx context.Context) Report

	// Create creates an instance, and returns when the agent accepts connections. After an error, or if ctx ends first,
	// nothing is left. The instance outlives ctx and the daemon.
	Create(ctx context.Context, spec Spec) (Instance, error)

	// Recover finds an instance after a restart of the daemon. If the instance no longer runs, Recover removes its
	// remains and returns hutch.NotFound.
	Recover(ctx context.Context, id string, h Handle) (Instance, error)

	// Sweep removes from the host the remains of instances for which keep returns false, such as those of a daemon that
	// was killed at any moment. It returns how many it removed. It is called before the first Create, never at the same
	// time.
	Sweep(ctx context.Context, keep func(id string) bool) (int, error)
}

// Defaults are the values that differ from driver to driver.
type Defaults struct {
	Limits hutch.Limits // default limits of an instance; every field is set
	// FilesInMemory reports that written files are in memory. The default disk limit of an instance is then half of its
	// memory limit.
	FilesInMemory bool
	// CreateTime limits how long the driver can take to make an instance.
	CreateTime time.Duration
	// Root returns the reason why no command can be root in an instance whose root is an EROFS file, and what would
	// change that. It returns nil if commands can be root. It is called only for requests for root, because it can take
	// milliseconds. If Root is nil, no instance of the driver has root.
	Root func() error
}

// CanBeRoot reports whether commands can be root in an instance whose root is an EROFS file. If they cannot, but a
// change of this machine would help, reason explains that.
func (d Defaults) CanBeRoot() (can bool, reason string) {
	if d.Root == nil {
		return false, ""
	}
	if err := d.Root(); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// Usual are the defaults of most drivers.
var Usual = Defaults{
	Limits:     hutch.Limits{CPU: 1, Memory: 512, Disk: 1024, PIDs: 512, Processes: 10},
	CreateTime: time.Minute,
}

// Spec describes an instance to be created.
type Spec struct {
	ID string // unique among the live instances of this driver
	// Image is the reference of the image, and Root is the image on this host. A driver whose instances are on another
	// machine resolves Image itself. A driver that has only the host's programs refuses Root.EROFS with an error of
	// kind Unsupported.
	Image  string
	Root   image.Root
	Limits hutch.Limits // every field is set
	// Boot is the message to the agent. The driver sets Listen, UID, GID, Groups and Version as the instance and the root
	// require; the engine sets the rest.
	Boot wire.Boot
	// Network requests a network device: see Networked.
	Network bool
	// Layer holds the files that the instance starts with, if its driver is a Layerer; nil for none.
	Layer Layer
}

// Handle is the data with which a driver finds an instance again: small, opaque JSON that is kept in the store. It
// holds no secret.
type Handle = json.RawMessage

// Instance is a live instance. Its methods are safe for concurrent use.
type Instance interface {
	// ID returns the id of the spec.
	ID() string

	// Handle returns the handle, which never changes.
	Handle() Handle

	// Dial connects to the agent. The caller then sends the hello (package wire).
	Dial(ctx context.Context) (net.Conn, error)

	// Usage reads the instance's current and total usage.
	Usage(ctx context.Context) (Usage, error)

	// Done returns a channel that is closed when the instance is dead, whatever the cause.
	Done() <-chan struct{}

	// Destroy kills everything inside, and frees all of the instance's resources on the host before it returns. It is
	// idempotent. ctx limits the wait; after an error Destroy can be called again.
	Destroy(ctx context.Context) error
}

// Networked is an instance with a network device, of package tun.
type Networked interface {
	Instance

	// Network returns the other end of the device, in non-blocking mode. Each read or write transfers one IP packet,
	// also after a restart of the daemon. The caller closes it. Packets from programs wait until they are read. The
	// error is hutch.Unavailable if the instance has no device, because the spec did not request one or this machine
	// supports none.
	Network() (*os.File, error)
}

// Connector is an instance whose servers can be reached without its agent, which would only relay the bytes.
type Connector interface {
	Instance

	// Connect connects to a server on the instance's own loopback. An error does not mean that no server listens: a
	// server can listen on another address, which only the agent finds. ctx bounds only the connecting; the
	// connection has CloseWrite, and can outlive the instance.
	Connect(ctx context.Context, port int) (net.Conn, error)
}

// Restorer is a Driver whose instances can be saved with their memory and running programs; its instances are Savers.
type Restorer interface {
	Driver

	// Restore creates an instance from the files that Save or Copy wrote to dir. The image must be unchanged, and the
	// spec must equal that of the saved instance except for ID and host name; the agent keeps the saved instance's boot
	// (see wire.Identity). One dir can be restored any number of times, also concurrently.
	Restore(ctx context.Context, spec Spec, dir string) (Instance, error)

	// RestoreFiles creates an instance with only the written files. The conditions of Restore do not apply to it.
	RestoreFiles(ctx context.Context, spec Spec, dir string) (Instance, error)

	// Prepare creates an instance for a later Restore, as far as that is possible without knowing what will be restored.
	// It ignores the spec's Boot.
	Prepare(ctx context.Context, spec Spec) (Vacancy, error)

	// Build returns the name of the programs of new instances. Memory can be restored only with the build that saved
	// it. The name is empty if the driver keeps no programs: then nothing shows whether it can restore what an earlier
	// process saved.
	Build() string

	// BuildOf returns the build that can restore the data that Save or Copy wrote to dir.
	BuildOf(dir string) (string, error)

	// Restores returns the reason why the driver cannot restore memory of a build; nil if it can.
	Restores(build string) error
}

// Keeper is a Restorer that keeps the programs of builds. So it can restore memory that an older or newer version of
// Hutch saved.
type Keeper interface {
	Restorer

	// Contract is the prefix of the names of all builds that the driver can use once it has their programs; it is empty
	// if the driver uses only its own programs.
	Contract() string

	// Retain removes the builds that are not needed and not used by an instance. Call it before instances are restored.
	Retain(needed func(build string) bool) error

	// SendBuild writes the programs of a build for ReceiveBuild. ReceiveBuild refuses programs of any other build.
	SendBuild(build string, w io.Writer) error
	ReceiveBuild(build string, r io.Reader) error
}

// Relocator is a Restorer that restores memory of other machines, too.
type Relocator interface {
	Restorer

	// Relocate changes the content of dir, which Save or SaveFiles wrote on another machine, so that Restore works
	// here. It replaces everything that differs between machines, such as the paths of images, by the values of the
	// spec. The caller has checked that the driver restores the build, and that the image is the same.
	Relocate(spec Spec, dir string) error
}

// Vacancy is an instance in which nothing has started yet. It has a Handle and Done and can be destroyed, but neither
// dialed nor recovered.
type Vacancy interface {
	Instance

	// Restore makes the instance continue from the files that Save or Copy wrote to dir; its agent then gets the host
	// name and the rest of the identity (wire.Identity). The spec must equal that of the saved instance except for ID
	// and Boot. Call it once; after an error nothing is left of the instance.
	Restore(ctx context.Context, dir string) (Instance, error)
}

// Saver is an instance that can be saved.
type Saver interface {
	Instance

	// Save writes the whole instance to dir, an empty folder, and syncs it to disk. The agent must be parked
	// (wire.Client.Park). After Save, the instance is frozen: destroy or resume it. After an error, dir is unusable.
	Save(ctx context.Context, dir string) error

	// Resume makes the instance run again, and a parked agent listen. It is idempotent; Recover does the same.
	Resume(ctx context.Context) error

	// Copy writes to dir what Restore needs. It freezes the instance only for that time. Then the instance runs again,
	// and its agent, which must be parked, listens. Copy does not wait until the files are on disk. After an error the
	// instance runs again too, and dir is unusable.
	Copy(ctx context.Context, dir string) error
}

// Layerer is a Driver whose instances can share the files that they begin with.
type Layerer interface {
	Driver

	// Layers reports whether instances can share files on this machine, as far as that is known.
	Layers() bool

	// Layer turns the written files of an unused instance into a layer, and always destroys the instance. The error is
	// hutch.Unsupported if this machine or that instance allows no layer. If that is found only when the layer is used,
	// Create returns the same error.
	Layer(ctx context.Context, inst Instance) (Layer, error)
}

// Layer is a set of files that instances share: each instance sees them as its own files, and its changes stay private.
// The layer's disk space is freed when the layer is closed and the last instance that uses it is gone, even if the
// daemon is killed.
type Layer interface{ Close() error }

// Freezer is an instance that can be frozen with all its programs. A frozen instance can be thawed and destroyed, and
// reports its usage; Recover thaws it.
type Freezer interface {
	Instance
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
}

// Renamer is an instance whose host name is changed from outside, because its agent lacks the right. If the name cannot
// be changed at all, the error is hutch.Unsupported.
type Renamer interface {
	Instance

	Rename(hostname string) error
}

// Guarded is an instance whose memory limit the daemon enforces: the daemon ends programs inside before the kernel
// would have to end the whole instance.
type Guarded interface {
	Instance

	// GuardMemory watches the memory of the instance until ctx is done or the instance is dead, and then returns nil.
	// When the instance is over its limit, it calls relieve, as often as needed and never concurrently. used is the
	// number of bytes in use, and urgent means that some program must be ended. relieve ends the programs that use the
	// most memory, and reports whether it ended any; an error of relieve means that it cannot do that at the moment. An
	// error of GuardMemory means that the instance was over its limit for too long. Then it is still alive, and its
	// files can be kept without its agent.
	GuardMemory(ctx context.Context, relieve func(ctx context.Context, used int64, urgent bool) (ended bool, err error)) error
}

// FileSaver is an instance whose files can be kept without its agent.
type FileSaver interface {
	Instance

	// SaveFiles stops everything inside for good, writes to dir what Restorer.RestoreFiles needs, and syncs it to disk.
	SaveFiles(ctx context.Context, dir string) error
}

// Archiver is an instance whose files can be kept without its agent, as an archive.
type Archiver interface {
	Instance

	// Archive stops everything inside, and writes the folders of the user to w as a tar archive with paths relative to
	// the root. After success, the caller must destroy the instance. After an error, the instance continues if it can.
	Archive(ctx context.Context, w io.Writer) error
}

// Usage is one reading. Figures that a runtime cannot measure are 0.
type Usage struct {
	CPUSeconds float64 // since creation
	Memory     int64   // bytes now, without cached files, because the kernel can drop those
	MemoryPeak int64
	PIDs       int
	Disk       int64 // bytes of written files
	// OOMKills counts processes that were killed because memory ran out.
	OOMKills int
}

// Report is the result of Check.
type Report struct {
	OK       bool      `json:"ok"` // the driver can create instances here
	Findings []Finding `json:"findings"`
}

// Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"` // "user namespaces"
	Level  Level  `json:"level"`
	Detail string `json:"detail"`        // the result
	Fix    string `json:"fix,omitempty"` // how to fix it, as a command if there is one; empty if nothing is wrong
}

// Level of a finding.
type Level string

const (
	Good    Level = "ok"
	Warning Level = "warning" // works with restrictions, which the detail names
	Bad     Level = "error"   // the driver does not work here
)

// ErrLate is in the chain of an error when an instance was not ready in time. The cause can be a busy host; the
// instance itself is then not faulty.
var ErrLate = errors.New("not ready in time")

// CreateError returns the error that a Create returns for err. unavailable is the text if neither the request nor the
// time limit of ctx is the reason.
func CreateError(ctx context.Context, err error, unavailable string) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return hutch.Errorf(hutch.Timeout, "the sandbox was not ready in time: try again").Because(errors.Join(context.Cause(ctx), err))
	}
	return hutch.Errorf(hutch.Unavailable, "%s", unavailable).Because(err)
}

// Options configure a driver.
type Options struct {
	// Dir is the driver's state folder, which nothing else uses. It is created if missing.
	Dir string
	// Agent is the path of the hutch-agent program.
	Agent string
}

// SetUser sets the user that commands run as, in the agent's own user namespace. It refuses user 0, because a command
// with the agent's own id could trace the agent and so reach what only the agent is allowed to reach.
func SetUser(b *wire.Boot, root image.Root) error {
	user := root.Account()
	if user.UID <= 0 || user.GID < 0 {
		return hutch.Errorf(hutch.Unsupported, "no command can run as user %d, group %d: choose a user of the image other than root", user.UID, user.GID)
	}
	b.UID, b.GID, b.Groups = user.UID, user.GID, user.Groups
	return nil
}

// SetAnyUser is SetUser for drivers where commands can be root, because the agent has another id, wire.AgentID.
func SetAnyUser(b *wire.Boot, root image.Root) error {
	user := root.Account()
	if user.UID < 0 || user.GID < 0 || user.UID >= wire.AgentID || user.GID >= wire.AgentID {
		return hutch.Errorf(hutch.Unsupported, "no command can run as user %d, group %d: choose ids below %d", user.UID, user.GID, wire.AgentID)
	}
	// A group that the host does not have is only in the image, and no process inside can have it.
	groups := slices.DeleteFunc(slices.Clone(user.Groups), func(g int) bool { return g >= wire.AgentID })
	b.UID, b.GID, b.Groups = user.UID, user.GID, groups
	return nil
}
