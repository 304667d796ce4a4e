package hutch

import "path"

// SnapshotDiffRequest asks what differs between a snapshot and another one, or a sandbox as it is now. If the request
// names neither, the other side is the sandbox that the snapshot was made from.
type SnapshotDiffRequest struct {
	To        string `json:"to,omitempty"`        // the id or a name of another snapshot
	SandboxID string `json:"sandboxId,omitempty"` // a sandbox, as it is now
	// Path is a file, or a folder with all that is below it; default everything. It is absolute.
	Path string `json:"path,omitempty"`
	// Text adds the difference of the text of files: see FileChange.Patch.
	Text bool `json:"text,omitempty"`
	// Wake wakes the sandbox if it sleeps or is paused. Without it, a stopped sandbox is compared by the files that
	// were kept, and a sandbox whose files are only in its memory is a Conflict.
	Wake bool `json:"wake,omitempty"`
}

// Check refuses a request that no server can answer.
func (r SnapshotDiffRequest) Check() error {
	if r.To != "" && r.SandboxID != "" {
		return Errorf(Invalid, "to names a snapshot and sandboxId a sandbox: give one of them").Naming(AboutField, "to")
	}
	if r.To != "" && r.Wake {
		return Errorf(Invalid, "wake is for a sandbox: leave it out to compare two snapshots").Naming(AboutField, "wake")
	}
	if r.To != "" {
		if err := CheckTemplateName(r.To); err != nil {
			return err
		}
	}
	if err := checkOptionalID(r.SandboxID); err != nil {
		return err
	}
	if r.Path == "" {
		return nil
	}
	if err := CheckPath(r.Path); err != nil {
		return err
	}
	if !path.IsAbs(r.Path) {
		return Errorf(Invalid, "the path %.200q is relative: give an absolute one, such as /workspace/src", r.Path).Naming(AboutField, "path")
	}
	return nil
}

// SnapshotDiff is what differs between the written files of a snapshot and those of the other side.
type SnapshotDiff struct {
	Snapshot  string `json:"snapshotId"`          // the first side
	To        string `json:"to,omitempty"`        // the id of the other snapshot
	SandboxID string `json:"sandboxId,omitempty"` // or the sandbox

	Added   int `json:"added"` // files that only the other side has
	Changed int `json:"changed"`
	Deleted int `json:"deleted"` // files that only the snapshot has

	Files []FileChange `json:"files"` // sorted by path
	// Truncated is true if there were too many changes for one answer. The numbers count all of them.
	Truncated bool `json:"truncated,omitempty"`
}

// FileChange is a file that differs: in its type, mode, owner, size, target or content.
type FileChange struct {
	Kind   ChangeKind `json:"change"`
	Before *FileInfo  `json:"before,omitempty"` // in the snapshot; nil for an added file
	After  *FileInfo  `json:"after,omitempty"`  // on the other side; nil for a deleted file
	// Patch has the hunks of a unified difference, if the text was asked for and the content differs.
	Patch string `json:"patch,omitempty"`
	// NoPatch says why the text that was asked for is missing.
	NoPatch PatchOmission `json:"noPatch,omitempty"`
}

// Path returns the path at which the file is.
func (c FileChange) Path() string {
	switch {
	case c.After != nil:
		return c.After.Path
	case c.Before != nil:
		return c.Before.Path
	}
	return ""
}

// ChangeKind is what happened to a file.
type ChangeKind string

const (
	AddedFile   ChangeKind = "added"
	ChangedFile ChangeKind = "changed"
	DeletedFile ChangeKind = "deleted"
)

// PatchOmission is why the difference of a file has no text.
type PatchOmission string

const (
	BinaryFile PatchOmission = "binary" // one side is not UTF-8
	LargeFile  PatchOmission = "large"  // one side has more than MaxPatchedFile bytes
	LinkedFile PatchOmission = "link"   // the file has several names, and its content is listed under another name
	PatchLimit PatchOmission = "limit"  // the text of the answer has reached its limit
)

// MaxPatchedFile is the size of the largest file whose text is compared, in bytes.
const MaxPatchedFile = 128 << 10
