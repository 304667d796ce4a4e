package hutch

import (
	"context"
	"time"
)

// Snapshots are the verbs that keep what a sandbox is, make others of it, and
// have it stand still. A sandbox begins as a snapshot when
// [CreateRequest.Snapshot] names one; a snapshot with a name serves as a
// template.
//
// Where the runtime can save memory, a snapshot is all of a sandbox: its files,
// its processes and their memory, its code contexts. Elsewhere it is its files,
// and says so. What is made from one has an id, an environment, secrets' lookup
// and random numbers of its own, and none of its connections; the processes in
// it were started with the environment of the first, and keep that.
type Snapshots interface {
	// Snapshot keeps what the sandbox is now, and has it run on. With memory,
	// it needs a moment at which nothing is under way in it but background
	// processes: it waits some seconds for one, and then is Conflict.
	Snapshot(ctx context.Context, sandbox string, req SnapshotRequest) (Snapshot, error)

	// Snapshots lists the caller's snapshots and those that are shared with
	// all, oldest first.
	Snapshots(ctx context.Context) ([]Snapshot, error)

	// DeleteSnapshot deletes a snapshot of the caller's, by its id or name. It
	// is idempotent. Sandboxes that began as it do not need it.
	DeleteSnapshot(ctx context.Context, snapshot string) error

	// Fork makes copies of the sandbox as it is now, all or none, with new ids.
	// It is as Snapshot.
	Fork(ctx context.Context, sandbox string, req ForkRequest) ([]Sandbox, error)

	// Pause has everything in the sandbox stand still, in memory, until it is
	// used or resumed: any use does. It needs a moment as Snapshot does, and
	// is Unsupported on native where the host has no control groups.
	Pause(ctx context.Context, sandbox string) (Sandbox, error)

	// Resume has a sandbox run that is paused, hibernated or stopped.
	Resume(ctx context.Context, sandbox string) (Sandbox, error)
}

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	// Name is like no other of the owner's, by the rule of ids; none is needed.
	Name      string  `json:"name,omitempty"`
	FilesOnly bool    `json:"filesOnly,omitempty"` // leave memory out
	TTL       Seconds `json:"ttl,omitempty"`       // how long it is kept; default: until it is deleted
	// Shared lets everybody on the server make sandboxes of it. That is for
	// administrators: it has all that was in memory.
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

// Snapshot is what is known of a snapshot.
type Snapshot struct {
	ID        string     `json:"snapshotId"`
	Name      string     `json:"name,omitempty"`
	SandboxID string     `json:"sandboxId"` // which it was made of
	Owner     string     `json:"owner,omitempty"`
	Shared    bool       `json:"shared,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	Memory    bool       `json:"memory"` // false: files alone
	Size      int64      `json:"size"`   // bytes on disk
	Stood     Seconds    `json:"stood"`  // how long the sandbox stood still for it
	Image     string     `json:"image"`
	Runtime   string     `json:"runtime"`
	Limits    Limits     `json:"limits"`
}

// MaxForks is how many copies one call makes.
const MaxForks = 100

// ForkRequest asks for copies of a sandbox.
type ForkRequest struct {
	Count int `json:"count,omitempty"` // 1 to MaxForks; 0, which is none given, means 1
	// Env is set for what is started in the copies, over what the sandbox has.
	Env map[string]string `json:"env,omitempty"`
}

// Check refuses a request that no server can answer.
func (r ForkRequest) Check() error {
	if r.Count < 0 || r.Count > MaxForks {
		return Errorf(Invalid, "count is %d: give 1 to %d", r.Count, MaxForks)
	}
	return checkEnv(r.Env)
}
