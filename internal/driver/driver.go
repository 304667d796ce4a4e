// Package driver is the contract between the engine and the runtimes.
//
// A driver only provides a place and a pipe: an isolated place made from a root
// file system, limits and a network attachment, whose first process is the agent,
// and a way to dial that agent. Everything inside is the agent's work (package
// wire), so it is written once and behaves the same on every runtime.
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

// Driver creates places. Its methods are safe for concurrent use; a driver keeps under its own state folder what it
// needs to find its places again.
type Driver interface {
	// Name is the runtime's name in the APIs: "gvisor", "native", "docker".
	Name() string

	// Defaults is what the driver gives a place that asks for nothing else. It
	// never changes.
	Defaults() Defaults

	// Check looks at this host: what works, what does not, and the fix. It
	// changes nothing.
	Check(ctx context.Context) Report

	// Create creates a place and returns when its agent accepts connections. On error, or if ctx ends first, it
	// leaves nothing behind. The place outlives ctx, and the daemon.
	Create(ctx context.Context, spec Spec) (Instance, error)

	// Recover finds a place after a restart of the daemon. The error is hutch.NotFound if the place no longer runs;
	// then Recover has removed what was left of it.
	Recover(ctx context.Context, id string, h Handle) (Instance, error)

	// Sweep removes from the host the remains of places that keep does not claim, such as those of a daemon that was
	// killed at any moment. It returns how many it removed. It is called before the first Create, never at the same
	// time.
	Sweep(ctx context.Context, keep func(id string) bool) (int, error)
}

// Defaults are the figures that differ from driver to driver.
type Defaults struct {
	Limits hutch.Limits // limits of a place that asks for none; every field is set
	// FilesInMemory says that written files are in memory: the disk limit of a
	// place that asks for none is then half of its memory limit.
	FilesInMemory bool
	// CreateTime bounds how long the driver may take to make a place.
	CreateTime time.Duration
	// Root says that commands can be root in a place whose root is an EROFS file.
	Root bool
}

// Usual are the defaults of a driver that has no reason for others.
var Usual = Defaults{
	Limits:     hutch.Limits{CPU: 1, Memory: 512, Disk: 1024, PIDs: 512, Processes: 10},
	CreateTime: time.Minute,
}

// Spec is a place to be made.
type Spec struct {
	ID string // unique among the living of this driver
	// Image is the reference of the image, and Root what it is on this host. A
	// driver whose places are on another machine resolves Image itself.
	// A driver that cannot use Root.EROFS refuses it: see NoEROFS.
	Image  string
	Root   image.Root
	Limits hutch.Limits // every field set
	// Boot is the message to the agent. The driver sets Listen, UID, GID, Groups and Version as the place and the root
	// require; the engine sets the rest.
	Boot wire.Boot
	// Network asks for a network device: see Networked.
	Network bool
	// Layer holds the files that the place begins with, if its driver is a Layerer; nil for none.
	Layer Layer
}

// Handle is how a driver finds a place again: small, opaque JSON that is kept in the store. It holds no secret.
type Handle = json.RawMessage

// Instance is a live place. Its methods are safe for concurrent use.
type Instance interface {
	// ID is the id of the spec.
	ID() string

	// Handle never changes.
	Handle() Handle

	// Dial connects to the agent. The caller says hello (package wire).
	Dial(ctx context.Context) (net.Conn, error)

	// Usage reads what the place uses now, and has used.
	Usage(ctx context.Context) (Usage, error)

	// Done is closed when the place is dead, whatever the cause.
	Done() <-chan struct{}

	// Destroy kills everything inside and frees everything that the place holds on the host, before it returns. It is
	// idempotent; ctx bounds the wait, and after an error it can be called again.
	Destroy(ctx context.Context) error
}

// Networked is a place with a network device, of package tun.
type Networked interface {
	Instance

	// Network returns the other end of the device, in non-blocking mode. Each read or write transfers one IP packet,
	// also after a restart of the daemon; the caller closes it. Packets from programs wait until it is read. The
	// error is hutch.Unavailable if the place has no device, because the spec did not ask for one or this machine has
	// none.
	Network() (*os.File, error)
}

// Connector is a place whose servers can be reached without its agent, which would only relay the bytes.
type Connector interface {
	Instance

	// Connect connects to a server on the place's own loopback. An error does not mean that no server listens: the
	// agent knows more addresses. ctx bounds only the connecting; the connection has CloseWrite, and can outlive the
	// place.
	Connect(ctx context.Context, port int) (net.Conn, error)
}

// Restorer is a Driver whose places can be saved with their memory and running programs; its instances are Savers.
type Restorer interface {
	Driver

	// Restore creates a place from what Save or Copy wrote to dir. The image must be unchanged, and the spec must
	// equal that of the saved place except for ID and host name; the agent keeps the saved place's boot (see
	// wire.Identity). One dir can be restored any number of times, also concurrently.
	Restore(ctx context.Context, spec Spec, dir string) (Instance, error)

	// RestoreFiles creates a place with only the written files, so those conditions do not apply.
	RestoreFiles(ctx context.Context, spec Spec, dir string) (Instance, error)

	// Prepare creates a place for a later Restore, as far as that is possible without knowing what will be restored.
	// It ignores the spec's Boot.
	Prepare(ctx context.Context, spec Spec) (Vacancy, error)

	// Build names the programs that saved memory belongs to: another build may be unable to restore it.
	Build() string
}

// Relocator is a Restorer that restores memory of other machines, too.
type Relocator interface {
	Restorer

	// Relocate changes the content of dir, which Save or SaveFiles wrote on another machine, so that Restore works here: everything
	// that differs between machines, such as the paths of images, is replaced by that of the spec. The caller has checked that Build
	// and the image are the same.
	Relocate(spec Spec, dir string) error
}

// Vacancy is a place in which nothing has started yet. It has a Handle and Done and can be destroyed, but neither
// dialled nor recovered.
type Vacancy interface {
	Instance

	// Restore makes the place continue from what Save or Copy wrote to dir; its agent then gets the host name and the
	// rest of the identity (wire.Identity). The spec must equal that of the saved place except for ID and Boot. Call
	// it once; on error nothing is left of the place.
	Restore(ctx context.Context, dir string) (Instance, error)
}

// Saver is a place that can be saved.
type Saver interface {
	Instance

	// Save writes the whole place to dir, an empty folder, which is on disk when Save returns. The agent must be
	// parked (wire.Client.Park). The place is then frozen; destroy or resume it. On error dir is unusable.
	Save(ctx context.Context, dir string) error

	// Resume makes the place run again, and a parked agent listen. It is idempotent; Recover does it too.
	Resume(ctx context.Context) error

	// Copy writes what Restore needs to dir, and freezes the place only for that time; then the place runs again, and
	// its agent, which must be parked, listens. The written files need not be on disk yet. On error the place runs
	// again too, and dir is unusable.
	Copy(ctx context.Context, dir string) error
}

// Layerer is a Driver whose places can share the files that they begin with.
type Layerer interface {
	Driver

	// Layers reports whether places can share files on this machine, as far as is known.
	Layers() bool

	// Layer turns the written files of an unused place into a layer, and always destroys the place. The error is
	// hutch.Unsupported if this machine or that place allows no layer; Create returns the same error if that only
	// turns out there.
	Layer(ctx context.Context, inst Instance) (Layer, error)
}

// Layer is a set of files that places share: each sees them as its own, and its changes stay private. Their space is
// freed when the layer is closed and the last place that began with it is gone, also if the daemon is killed.
type Layer interface{ Close() error }

// Freezer is a place that can be frozen with all its programs. A frozen place can be thawed and destroyed, and
// reports its usage; Recover thaws it.
type Freezer interface {
	Instance
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
}

// Renamer is a place whose host name is changed from outside, because its agent lacks the right. The error is
// hutch.Unsupported if it cannot be changed at all.
type Renamer interface {
	Instance

	Rename(hostname string) error
}

// Guarded is a place whose memory limit the daemon enforces: it ends programs inside before the kernel would have to
// end the whole place.
type Guarded interface {
	Instance

	// GuardMemory watches the memory of the place until ctx is done or the place is dead, and then returns nil. When
	// the place is over its limit, it calls relieve, as often as needed and never concurrently; used is the number of
	// bytes in use, and urgent means that some program must be ended. relieve ends the programs that use the most,
	// and reports whether it ended any; its error means that it cannot at the moment. An error of GuardMemory means
	// that the place was over its limit for too long: it still lives, and SaveFiles can keep its files.
	GuardMemory(ctx context.Context, relieve func(ctx context.Context, used int64, urgent bool) (ended bool, err error)) error

	// SaveFiles stops everything inside for good, and writes to dir what Restorer.RestoreFiles needs, which is on
	// disk when SaveFiles returns. It needs no agent.
	SaveFiles(ctx context.Context, dir string) error
}

// Archiver is a place whose files can be kept without its agent.
type Archiver interface {
	Instance

	// Archive stops everything inside, and writes the folders of the user to w as
	// a tar archive with paths relative to the root. On success the place is to be
	// destroyed. On error it continues, as far as it can.
	Archive(ctx context.Context, w io.Writer) error
}

// Usage is one reading. Figures that a runtime cannot measure are 0.
type Usage struct {
	CPUSeconds float64 // since creation
	Memory     int64   // bytes now
	MemoryPeak int64
	PIDs       int
	Disk       int64 // bytes of written files
	// OOMKills counts processes that were killed because memory ran out.
	OOMKills int
}

// Report is what Check found.
type Report struct {
	OK       bool      `json:"ok"` // the driver can create places here
	Findings []Finding `json:"findings"`
}

// Finding is one thing looked at.
type Finding struct {
	Name   string `json:"name"` // "user namespaces"
	Level  Level  `json:"level"`
	Detail string `json:"detail"`         // what was found
	Mend   string `json:"mend,omitempty"` // how to fix it, as a command if there is one; empty when OK
}

// Level of a finding.
type Level string

const (
	Good    Level = "ok"
	Warning Level = "warning" // works with restrictions, which the detail names
	Bad     Level = "error"   // the driver does not work here
)

// ErrLate is in the chain of an error when a place was not ready in time. The place itself can be sound; the host may
// be busy.
var ErrLate = errors.New("not ready in time")

// CreateError is what a Create returns for err: unavailable is its text when neither the request nor the time limit of
// ctx is the reason.
func CreateError(ctx context.Context, err error, unavailable string) error {
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return hutch.Errorf(hutch.Timeout, "the sandbox was not ready in time: try again").Because(errors.Join(context.Cause(ctx), err))
	}
	return hutch.Errorf(hutch.Unavailable, "%s", unavailable).Because(err)
}

// Options configure any driver.
type Options struct {
	// Dir is the driver's state folder, which nothing else uses. It is created if missing.
	Dir string
	// Agent is the path of the hutch-agent program.
	Agent string
}

// SetUser tells the agent who commands run as, in its own user namespace. It refuses user 0: with the agent's own id, a command could trace the
// agent and reach what only the agent may.
func SetUser(b *wire.Boot, root image.Root) error {
	user := root.Account()
	if user.UID <= 0 || user.GID < 0 {
		return hutch.Errorf(hutch.Unsupported, "no command can run as user %d, group %d: choose a user of the image other than root", user.UID, user.GID)
	}
	b.UID, b.GID, b.Groups = user.UID, user.GID, user.Groups
	return nil
}

// SetAnyUser is SetUser where commands can be root, because the agent has another id, wire.AgentID.
func SetAnyUser(b *wire.Boot, root image.Root) error {
	user := root.Account()
	if user.UID < 0 || user.GID < 0 || user.UID >= wire.AgentID || user.GID >= wire.AgentID {
		return hutch.Errorf(hutch.Unsupported, "no command can run as user %d, group %d: choose ids below %d", user.UID, user.GID, wire.AgentID)
	}
	// A group that is not below is the image's own invention, and no process inside can have it.
	groups := slices.DeleteFunc(slices.Clone(user.Groups), func(g int) bool { return g >= wire.AgentID })
	b.UID, b.GID, b.Groups = user.UID, user.GID, groups
	return nil
}

// NoEROFS refuses a root that is an EROFS file, on behalf of a driver that has only the host's programs.
func NoEROFS(runtime string) error {
	return hutch.Errorf(hutch.Unsupported, "the runtime %s can only use the image \"host\" here: choose another runtime for this image", runtime)
}
