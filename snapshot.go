package hutch

import (
	"context"
	"slices"
	"time"
)

// Snapshots are the verbs that save the state of a sandbox, make copies of it, and pause it. A sandbox starts from a
// snapshot when [CreateRequest.Snapshot] names one; a snapshot with a name is a template.
//
// If the runtime can save memory, a snapshot is a whole sandbox: its files, its processes with their memory, its code
// contexts. Otherwise it has only the files, and its record says so. A sandbox made from it has its own id,
// environment, secrets and random numbers, and no open connections. The processes in it keep the environment with which
// they were started.
type Snapshots interface {
	// Snapshot saves the sandbox's present state; the sandbox continues to run. With memory, it needs a moment in which
	// only background processes run: it waits some seconds for such a moment, then returns Conflict.
	Snapshot(ctx context.Context, sandbox string, req SnapshotRequest) (Snapshot, error)

	// CreateTemplate makes a template of a sandbox, and returns its snapshot. If the template's program does not become
	// ready, the error says why and has the end of the program's output, and nothing is left behind.
	CreateTemplate(ctx context.Context, req TemplateRequest) (Snapshot, error)

	// Snapshots lists the caller's snapshots and the shared ones, oldest first.
	Snapshots(ctx context.Context) ([]Snapshot, error)

	// TagSnapshot gives one of the caller's snapshots, by id or name, another name. A name of another snapshot is
	// Conflict, unless req.Replace moves it; a snapshot that loses its last name is deleted.
	TagSnapshot(ctx context.Context, snapshot string, req SnapshotTag) (Snapshot, error)

	// DeleteSnapshot deletes one of the caller's snapshots, by id or by its last name. If it has several names, only
	// the given name is removed. It is idempotent. Sandboxes that started from the snapshot do not need it.
	DeleteSnapshot(ctx context.Context, snapshot string) error

	// DiffSnapshot compares the written files of a snapshot with those of another snapshot, or of a sandbox as it is
	// now. A snapshot that the caller cannot see, and a sandbox of another owner, is NotFound. It runs nothing, and
	// wakes a sandbox only with req.Wake.
	DiffSnapshot(ctx context.Context, snapshot string, req SnapshotDiffRequest) (SnapshotDiff, error)

	// Fork makes copies of the sandbox's present state, all or none, with new ids. Like Snapshot, it waits until only
	// background processes run.
	Fork(ctx context.Context, sandbox string, req ForkRequest) ([]Sandbox, error)

	// Pause freezes all programs of the sandbox, in memory, until the next use or Resume. Like Snapshot, it waits until
	// only background processes run. It is Unsupported on native if the host has no control groups.
	Pause(ctx context.Context, sandbox string) (Sandbox, error)

	// Hibernate puts the sandbox to sleep now, also one with KeepAlive, and returns when its memory and files are on
	// disk. Background programs sleep with it. Like Snapshot, it waits briefly for other uses to end; a sandbox that is
	// still in use is a Conflict. A sleeping sandbox does not change. If the runtime cannot keep memory, only the files
	// are kept and the sandbox is stopped; a sandbox with background processes is then a Conflict, because they would
	// end. With FilesOnly, every runtime keeps only the files, and background processes end.
	Hibernate(ctx context.Context, sandbox string, req HibernateRequest) (Sandbox, error)

	// Resume continues a paused, hibernated or stopped sandbox.
	Resume(ctx context.Context, sandbox string) (Sandbox, error)
}

// HibernateRequest puts a sandbox to sleep.
type HibernateRequest struct {
	// FilesOnly keeps no memory: the sandbox is stopped, and its background processes end. They are asked to end before
	// they are killed.
	FilesOnly bool `json:"filesOnly,omitempty"`
}

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	// Name is unique among the owner's snapshots, in the form of an id; it can be empty.
	Name      string  `json:"name,omitempty"`
	FilesOnly bool    `json:"filesOnly,omitempty"` // leave memory out
	TTL       Seconds `json:"ttl,omitempty"`       // how long it is kept; default: until it is deleted
	// Shared lets all owners on the server create sandboxes from it. Only administrators can set it, because the
	// snapshot contains everything that was in memory.
	Shared bool `json:"shared,omitempty"`
}

// Check refuses a request that no server can answer.
func (r SnapshotRequest) Check() error {
	if err := checkOptionalID(r.Name); err != nil {
		return err
	}
	if !(r.TTL >= 0 && r.TTL <= maxLifetime) {
		return Errorf(Invalid, "ttl is in seconds, not negative and at most %d", maxLifetime)
	}
	return nil
}

// SnapshotTag is another name for a snapshot.
type SnapshotTag struct {
	// Name is NAME or NAME:TAG, unique among the owner's snapshots. NAME:latest is the same as NAME.
	Name string `json:"name"`
	// Replace moves the name from another snapshot.
	Replace bool `json:"replace,omitempty"`
}

// Check refuses a request that no server can answer.
func (r SnapshotTag) Check() error { return CheckTemplateName(r.Name) }

// MaxSnapshotNames is how many names a snapshot can have.
const MaxSnapshotNames = 100

// Snapshot is the record of a snapshot.
type Snapshot struct {
	ID        string     `json:"snapshotId"`
	Name      string     `json:"name,omitempty"`  // the oldest of its names
	Names     []string   `json:"names,omitempty"` // oldest first
	SandboxID string     `json:"sandboxId"`       // the sandbox that it was made from
	Owner     string     `json:"owner,omitempty"`
	Shared    bool       `json:"shared,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	Memory    bool       `json:"memory"` // false: only files
	Size      int64      `json:"size"`   // bytes on disk
	Stood     Seconds    `json:"stood"`  // how long the sandbox was frozen for it
	Image     string     `json:"image"`
	Runtime   string     `json:"runtime"`
	Limits    Limits     `json:"limits"`
	Template  *Template  `json:"template,omitempty"` // nil for a snapshot that was not made as a template
}

// HasName reports whether a text is one of the snapshot's names.
func (s Snapshot) HasName(name string) bool {
	name = TemplateName(name)
	return name != "" && (s.Name == name || slices.Contains(s.Names, name))
}

// IsCalled reports whether a text is the snapshot's id or one of its names.
func (s Snapshot) IsCalled(idOrName string) bool { return s.ID == idOrName || s.HasName(idOrName) }

// MaxForks is the highest number of copies in one call.
const MaxForks = 100

// ForkRequest asks for copies of a sandbox.
type ForkRequest struct {
	Count int `json:"count,omitempty"` // 1 to MaxForks; 0 means 1
	// Env adds variables for programs that start in the copies.
	Env map[string]string `json:"env,omitempty"`
}

// Check refuses a request that no server can answer.
func (r ForkRequest) Check() error {
	if r.Count < 0 || r.Count > MaxForks {
		return Errorf(Invalid, "count is %d: give 1 to %d", r.Count, MaxForks)
	}
	return checkEnv(r.Env)
}
