// Package driver is the contract between the engine and the runtimes.
//
// A driver only provides a place and a pipe: an isolated place made from a
// root file system, limits and a network attachment, with the agent running
// in it as the first process, and a way to dial that agent. All that happens
// inside is the agent's work (package wire), so that it is written once and
// behaves the same on every runtime.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// Driver makes places. Its methods are safe for concurrent use; a driver
// keeps what it needs to find its places again under its own state folder.
type Driver interface {
	// Name is the runtime's name in the APIs: "gvisor", "native".
	Name() string

	// Defaults is what the driver gives a place that asks for nothing else. It
	// never changes.
	Defaults() Defaults

	// Check looks at this host: what works, what does not, and the mend. It
	// changes nothing.
	Check(ctx context.Context) Report

	// Create makes a place and returns when its agent accepts connections.
	// All or nothing: on error, or when ctx ends before, nothing is left. The
	// place outlives ctx, and the daemon.
	Create(ctx context.Context, spec Spec) (Instance, error)

	// Recover finds a place again after a restart of the daemon. The error is
	// hutch.NotFound when it no longer runs; then nothing is left of it.
	Recover(ctx context.Context, id string, h Handle) (Instance, error)

	// Sweep removes what is left on the host of places that keep does not
	// claim: after a kill -9 of the daemon, at any moment of it. It returns
	// how many it removed. Called before the first Create, never beside one.
	Sweep(ctx context.Context, keep func(id string) bool) (int, error)
}

// Defaults are the figures that differ from driver to driver.
type Defaults struct {
	Limits hutch.Limits // of a place that asks for none; every field is set
	// FilesInMemory says that written files are in memory: the disk limit of a
	// place that asks for none is then half of its memory limit.
	FilesInMemory bool
	// CreateTime bounds how long the driver may take to make a place.
	CreateTime time.Duration
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
	Image  string
	Root   image.Root
	Limits hutch.Limits // every field set
	// Boot is what the agent is to be told. The driver sets Listen, UID, GID
	// and Version, as the place demands; the rest is the engine's.
	Boot wire.Boot
	// Network asks for a network device: see Networked.
	Network bool
	// Layer is what the place has already, where its driver is a Layerer; nil
	// for nothing.
	Layer Layer
}

// Handle is how a driver finds a place again: small, opaque JSON, kept in the
// store. It holds no secret.
type Handle = json.RawMessage

// Instance is a living place. Methods are safe for concurrent use.
type Instance interface {
	// ID is that of the spec.
	ID() string

	// Handle never changes.
	Handle() Handle

	// Dial connects to the agent. The caller says hello (package wire).
	Dial(ctx context.Context) (net.Conn, error)

	// Usage reads what the place uses now, and has used.
	Usage(ctx context.Context) (Usage, error)

	// Done is closed when the place is dead, whatever the cause.
	Done() <-chan struct{}

	// Destroy kills everything inside and frees all that the place holds on
	// the host. It returns when that is so. Idempotent; ctx bounds the wait,
	// and on error it can be called again.
	Destroy(ctx context.Context) error
}

// Networked is a place with a network device, of package tun.
type Networked interface {
	Instance

	// Network returns the other end of the device, in non-blocking mode. It
	// gives and takes one IP packet at a time, also after a restart of the
	// daemon; the caller closes it. Until it is read, what programs send waits.
	// The error is hutch.Unavailable where the place was made without, because
	// nobody asked for it or this machine has none.
	Network() (*os.File, error)
}

// Connector is a place whose servers can be reached without its agent, which
// would only pass the bytes on.
type Connector interface {
	Instance

	// Connect connects with a server on the place's own loopback. No error says
	// that there is none: the agent knows more addresses. ctx bounds the
	// connecting alone; the connection has CloseWrite, and need not end with
	// the place.
	Connect(ctx context.Context, port int) (net.Conn, error)
}

// Restorer is a Driver whose places can be saved with their memory and all that
// runs in them; its instances are Savers.
type Restorer interface {
	Driver

	// Restore makes a place from what Save or Copy wrote to dir, as Create does
	// from nothing. The image must be as it was, and the spec that of the place
	// which was saved but for its ID and host name; the agent has that one's
	// boot (see wire.Identity). The same dir may be restored any number of times,
	// also at once.
	Restore(ctx context.Context, spec Spec, dir string) (Instance, error)

	// RestoreFiles makes a place with no more of it than the written files,
	// which does without those conditions.
	RestoreFiles(ctx context.Context, spec Spec, dir string) (Instance, error)

	// Prepare makes a place for something that was saved, up to the point from
	// which on it matters what. Of the spec's Boot it has nothing.
	Prepare(ctx context.Context, spec Spec) (Vacancy, error)

	// Build names the programs that memory belongs to: what one build saved,
	// another need not restore.
	Build() string
}

// Vacancy is a place in which nothing has begun yet. It has a Handle and is
// Done and can be destroyed, but neither dialled nor recovered.
type Vacancy interface {
	Instance

	// Restore has it go on as what Save or Copy wrote to dir; its host name and
	// the rest of its identity are to be given by its agent (wire.Identity). The
	// spec must be that of the place which was saved but for ID and Boot. Once,
	// and on error nothing is left of the place.
	Restore(ctx context.Context, dir string) (Instance, error)
}

// Saver is a place that can be saved.
type Saver interface {
	Instance

	// Save writes all that the place is to dir, an empty folder, on disk when
	// it returns. The agent must be parked (wire.Client.Park). The place then
	// stands still, to be destroyed or resumed. On error dir is of no use.
	Save(ctx context.Context, dir string) error

	// Resume has the place run on, and a parked agent listen. Idempotent;
	// Recover does it, too.
	Resume(ctx context.Context) error

	// Copy writes what Restore needs to dir, while the place stands still for
	// no longer than that takes; then it runs on, and its agent, which must be
	// parked, listens. What is written need not be on disk yet.
	// On error it runs on, too, and dir is of no use.
	Copy(ctx context.Context, dir string) error
}

// Layerer is a Driver whose places can share the files that they begin with.
type Layerer interface {
	Driver

	// Layers reports whether they can on this machine, as far as is known.
	Layers() bool

	// Layer makes a layer of what was written in a place that nobody uses any
	// more. The place is destroyed in any case. The error is hutch.Unsupported
	// where this machine or that place allows none; Create's is, where it turns
	// out then.
	Layer(ctx context.Context, inst Instance) (Layer, error)
}

// Layer is files that places share: each sees them as its own, and keeps what it
// changes to itself. What they take is freed when the layer is closed and the
// last place that began with it is gone, whatever becomes of the daemon.
type Layer interface{ Close() error }

// Freezer is a place that can stand still with all that runs in it. Frozen, it
// can be thawed and destroyed, and told the usage of; Recover thaws it.
type Freezer interface {
	Instance
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
}

// Renamer is a place that is given another host name from outside, since its
// agent may not do that. The error is hutch.Unsupported where nobody can.
type Renamer interface {
	Instance

	Rename(hostname string) error
}

// Guarded is a place whose memory limit the daemon enforces, by ending programs
// inside before the kernel would have to end the whole place.
type Guarded interface {
	Instance

	// GuardMemory watches the memory of the place until ctx is done or the place
	// is dead, and then returns nil. When the place uses more than its limit, it
	// calls relieve, as often as needed and never twice at once; used is how many
	// bytes are in use, and urgent that ending no program is no choice. relieve ends
	// the programs that use the most and reports whether it ended any; its error
	// means that it cannot now. GuardMemory's
	// error means that the place uses too much memory for too long: it still
	// lives, and its files can be kept with SaveFiles.
	GuardMemory(ctx context.Context, relieve func(ctx context.Context, used int64, urgent bool) (ended bool, err error)) error

	// SaveFiles stops everything inside for good, and writes to dir what
	// Restorer.RestoreFiles needs, on disk when it returns. It needs no agent.
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

// Usage is one reading. What a runtime cannot tell is 0.
type Usage struct {
	CPUSeconds float64 // since creation
	Memory     int64   // bytes now
	MemoryPeak int64
	PIDs       int
	Disk       int64 // bytes of written files
	// OOMKills counts processes killed for want of memory.
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
	Mend   string `json:"mend,omitempty"` // what to do, as a command where there is one; empty when OK
}

// Level of a finding.
type Level string

const (
	Good    Level = "ok"
	Warning Level = "warning" // works, with less: the detail says what is lost
	Bad     Level = "error"   // the driver does not work here
)

// ErrLate is in the chain of an error when a place was not ready in time, which says
// nothing against it: the host may be busy.
var ErrLate = errors.New("not ready in time")

// Options are what every driver is made from.
type Options struct {
	// Dir is the driver's state folder, its own alone. Made when missing.
	Dir string
	// Agent is the path of the hutch-agent program.
	Agent string
}
