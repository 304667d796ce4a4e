package hutch

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Volumes are named folders that outlive sandboxes. A sandbox that is created with a volume starts with the volume's
// files in a folder. At most one sandbox can write to a volume at a time: the server saves the folder of that sandbox
// as the new content of the volume, completely or not at all. It saves once a minute, before the sandbox sleeps, before
// it is destroyed, and when [Volumes.SaveVolumes] is called. Any number of sandboxes can read a volume; each has the
// volume's content at the time when the sandbox was created.
//
// Each owner has separate volumes. Another owner's volume is NotFound.
//
// Errors: NotFound for a volume that does not exist; Conflict for a volume that is in use; Exhausted for content over
// the quota; Denied for an archive with entries that a volume cannot have; Unsupported when the server has no volumes.
type Volumes interface {
	// CreateVolume makes an empty volume, or one whose files are the objects of a bucket. A name that is taken is
	// Conflict. A bucket that cannot be read is refused.
	CreateVolume(ctx context.Context, req VolumeRequest) (Volume, error)

	// Volumes lists the caller's volumes, by name.
	Volumes(ctx context.Context) ([]Volume, error)

	// Volume returns the record of a volume.
	Volume(ctx context.Context, name string) (Volume, error)

	// DeleteVolume removes a volume that no sandbox has, awake or asleep. Its bucket is not changed. A volume with
	// changes that are not in its bucket is Conflict, unless force discards them.
	DeleteVolume(ctx context.Context, name string, force bool) error

	// ReadVolume writes the file or folder at a path of the volume as a tar archive, in which names begin with the last
	// part of the path. An empty path is the whole volume.
	ReadVolume(ctx context.Context, name, path string, w io.Writer) error

	// WriteVolume puts the entries of a tar archive into a folder of the volume, which is created if it is missing. Files
	// of the same name are replaced; others stay. It is Conflict while a sandbox can write to the volume.
	WriteVolume(ctx context.Context, name, path string, r io.Reader) (Volume, error)

	// SaveVolumes saves the volumes that a sandbox can write to, and returns them.
	SaveVolumes(ctx context.Context, sandbox string) ([]Volume, error)

	// SyncVolume writes the changes of a volume to its bucket, and those of the bucket to the volume, if no sandbox can
	// write to it. The server writes changes to the bucket soon after each save, and exchanges changes in both
	// directions when a sandbox is created with the volume.
	SyncVolume(ctx context.Context, name string) (Volume, error)
}

// VolumeRequest asks for a volume.
type VolumeRequest struct {
	Name  string `json:"name"`            // like the id of a sandbox
	Quota int    `json:"quota,omitempty"` // MiB; default 1024
	// Bucket stores the files of the volume as objects; nil for a volume that only the server stores.
	Bucket *VolumeBucket `json:"bucket,omitempty"`
}

// VolumeBucket is the bucket of a volume, on an S3-compatible service. Only the server uses it, never a sandbox.
type VolumeBucket struct {
	URL string `json:"url"` // s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION
	// KeyID is the id of the access key, and KeySecret the name of the secret (Secrets) that has the key itself. A bucket
	// that everybody can read needs neither.
	KeyID     string `json:"keyId,omitempty"`
	KeySecret string `json:"keySecret,omitempty"`
}

// Check refuses a text that cannot be a bucket. The server parses the URL.
func (b VolumeBucket) Check() error {
	refuse := func(field, text string) error {
		return Errorf(Invalid, "%s", text).Naming(AboutField, field)
	}
	switch {
	case !strings.HasPrefix(b.URL, "s3://") || len(b.URL) > MaxPath || !utf8.ValidString(b.URL):
		return refuse("bucket.url", "the bucket of a volume is a URL: write s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION")
	case (b.KeyID == "") != (b.KeySecret == ""):
		return refuse("bucket.keyId", "an access key has two parts: give the key id, and the name of the secret that has the key; or neither, for a public bucket")
	case len(b.KeyID) > 200 || strings.ContainsFunc(b.KeyID, func(r rune) bool { return r <= ' ' || r > '~' }):
		return refuse("bucket.keyId", "the key id has other characters than letters, digits and signs, or more than 200")
	case b.KeySecret == "":
		return nil
	}
	return CheckSecretName(b.KeySecret)
}

// maxVolumeQuota is more than any disk has, in MiB.
const maxVolumeQuota = 1 << 30

// Check refuses a request that no server can answer.
func (r VolumeRequest) Check() error {
	if err := CheckVolume(r.Name); err != nil {
		return err
	}
	if r.Quota < 0 || r.Quota > maxVolumeQuota {
		return Errorf(Invalid, "quota is %d MiB: give 1 to %d, or leave it out for 1024", r.Quota, maxVolumeQuota).Naming(AboutField, "quota")
	}
	if r.Bucket != nil {
		return r.Bucket.Check()
	}
	return nil
}

// CheckVolume refuses a text that cannot be the name of a volume. The rules are the same as for [CheckID].
func CheckVolume(name string) error {
	if err := CheckID(name); err != nil {
		return Errorf(Invalid, "%.80q cannot be the name of a volume: use 1 to %d of a-z, 0-9 and hyphen", name, MaxID).Naming(AboutField, "name")
	}
	return nil
}

// CheckVolumePath refuses a text that cannot be a path in a volume. Paths are relative to the volume; a slash at the
// beginning is allowed.
func CheckVolumePath(p string) error {
	if err := CheckPath(p + "."); err != nil {
		return err
	}
	if slices.Contains(strings.Split(p, "/"), "..") {
		return Errorf(Invalid, "the path %.200q has a part ..: give the path in the volume", p).Naming(AboutField, "path")
	}
	return nil
}

// Volume is the record of a volume.
type Volume struct {
	Name      string      `json:"name"`
	Quota     int         `json:"quota"`   // MiB
	Size      int64       `json:"size"`    // bytes of its files, and at least 512 more for each entry; at most the quota
	Entries   int         `json:"entries"` // files, folders and links
	Version   int         `json:"version"` // grows by one whenever the content changes
	CreatedAt time.Time   `json:"createdAt"`
	SavedAt   time.Time   `json:"savedAt"`           // when the content last changed
	Problem   string      `json:"problem,omitempty"` // why the last save failed; empty if it did not
	Uses      []VolumeUse `json:"uses"`              // the sandboxes that have it

	Bucket        *VolumeBucket `json:"bucket,omitempty"`
	Unsynced      bool          `json:"unsynced,omitempty"`      // it has changes that are not in its bucket yet
	BucketProblem string        `json:"bucketProblem,omitempty"` // why the last exchange with the bucket did not work
}

// VolumeUse says that a sandbox has a volume.
type VolumeUse struct {
	SandboxID string `json:"sandboxId"`
	Path      string `json:"path"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// VolumeMount says where a sandbox has a volume.
type VolumeMount struct {
	Name string `json:"name"`
	// Path is an absolute path that the user of the sandbox can create, such as one below /workspace, /data or the home
	// folder. An existing folder must be empty.
	Path string `json:"path"`
	// ReadOnly lets other sandboxes write to the volume. Changes by this sandbox's programs are not saved.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// ParseVolumeMount parses NAME:/PATH or NAME:/PATH:ro. Check can still refuse the result.
func ParseVolumeMount(text string) VolumeMount {
	name, path, _ := strings.Cut(text, ":")
	path, readOnly := strings.CutSuffix(path, ":ro")
	return VolumeMount{Name: name, Path: path, ReadOnly: readOnly}
}

// MaxVolumeMounts is how many volumes a sandbox can have.
const MaxVolumeMounts = 16

// reservedPaths are the folders that no volume can cover, or be in.
var reservedPaths = []string{"/proc", "/sys", "/dev", "/.hutch", "/etc", "/run"}

// Check refuses a mount that no sandbox can have.
func (m VolumeMount) Check() error {
	if err := CheckVolume(m.Name); err != nil {
		return err
	}
	if m.Path == "" {
		return Errorf(Invalid, "the volume %q has no path in the sandbox: give it one, such as %[1]s:/workspace/%[1]s on the command line", m.Name).Naming(AboutField, "volumes")
	}
	if err := CheckPath(m.Path); err != nil {
		return err
	}
	refuse := func(why string) error {
		return Errorf(Invalid, "the volume %q cannot be at %.200q: %s; choose a path such as /workspace/%[1]s", m.Name, m.Path, why).Naming(AboutField, "volumes")
	}
	switch {
	case !path.IsAbs(m.Path):
		return refuse("the path is not absolute")
	case path.Clean(m.Path) != m.Path:
		return refuse("the path has empty parts, . or .., or a slash at its end")
	case m.Path == "/":
		return refuse("that is the whole file system")
	case strings.Contains(m.Path, ":"):
		return refuse("the path has a colon; behind a path there can only be :ro, for read only")
	}
	for _, dir := range reservedPaths {
		if within(m.Path, dir) {
			return refuse("that belongs to the system of the sandbox")
		}
	}
	return nil
}

// within reports whether a clean path is a folder or is below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// checkVolumes refuses volumes that no sandbox can have together.
func checkVolumes(list []VolumeMount) error {
	if len(list) > MaxVolumeMounts {
		return Errorf(Invalid, "there are %d volumes: a sandbox can have %d", len(list), MaxVolumeMounts).Naming(AboutField, "volumes")
	}
	for i, m := range list {
		if err := m.Check(); err != nil {
			return err
		}
		for _, other := range list[:i] {
			switch {
			case other.Name == m.Name:
				return Errorf(Invalid, "the volume %q is named twice: a sandbox has a volume at one path", m.Name).Naming(AboutField, "volumes")
			case within(other.Path, m.Path) || within(m.Path, other.Path):
				return Errorf(Invalid, "the volumes %q and %q are inside each other, at %.100s and %.100s: choose separate paths", other.Name, m.Name, other.Path, m.Path).Naming(AboutField, "volumes")
			}
		}
	}
	return nil
}
