package hutch

import "context"

// Checkpoints copies running sandboxes, for a backup of the whole server.
type Checkpoints interface {
	// CheckpointAll copies every sandbox that is awake into the server's data folder, and calls out for each of them,
	// and a last time when all are done. After an hour, those that are not copied yet are Missing. The copies stay
	// until ctx is done, so that a backup of the data folder contains them. A second call at the same time is Conflict.
	// It needs the scope admin.
	CheckpointAll(ctx context.Context, out func(Checkpoint) error) error
}

// Checkpoint is the result for one sandbox, or the end of a CheckpointAll.
type Checkpoint struct {
	SandboxID string `json:"sandboxId,omitempty"`
	Owner     string `json:"owner,omitempty"`
	// Memory says that the processes are in the copy, too; otherwise it has only the files.
	Memory bool `json:"memory,omitempty"`
	// Missing is why there is no copy.
	Missing string `json:"missing,omitempty"`
	// Done says that all sandboxes are done. The other fields are empty then.
	Done bool `json:"done,omitempty"`
}
