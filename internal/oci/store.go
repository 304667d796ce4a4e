package oci

import (
	"context"
	"io"
	"log/slog"
	"time"

	"hutch"
)

var errMissing = hutch.Errorf(hutch.Unsupported, "this server cannot do that with images yet")

// Options are what a store is opened with. The zero value has the default limits, reaches every public registry, and
// no private address.
type Options struct {
	Limits Limits
	// Registries are settings by the name of a registry, such as docker.io or registry.example:5000.
	Registries map[string]Registry
	// Allowed are the registries that images can be pulled from and pushed to; empty allows all.
	Allowed []string
	// Patience is how long a registry can send nothing before the store gives up; 0 is 30 seconds.
	Patience time.Duration
	Log      *slog.Logger // nil discards
}

// Registry is how one registry is reached.
type Registry struct {
	// Mirrors are asked first, in this order, when images are pulled: http://HOST:PORT or https://HOST/PREFIX. Their
	// addresses can be private, as the server's administrator wrote them down.
	Mirrors []string `json:"mirrors,omitempty"`
	// Private allows the registry itself, and no server that it redirects to, to have a private or loopback address.
	Private bool `json:"private,omitempty"`
	// Insecure talks HTTP without TLS to the registry.
	Insecure bool `json:"insecure,omitempty"`
}

// Limits bound what an image can make the server do. A zero field stands for its default.
type Limits struct {
	Bytes    int64 // unpacked files of one image; 32 GiB
	Entries  int   // files, folders and links of one image; 1,000,000
	Layers   int   // of one image; 256
	Blob     int64 // one layer as it is received; 16 GiB
	Ratio    int64 // unpacked bytes for each received byte of a layer, beyond the first 64 MiB; 200
	Document int64 // bytes of a manifest or a configuration; 4 MiB
	Depth    int   // indexes within indexes; 3
	Path     int   // bytes of a path in an image; 4,095
}

// Store is the images of a server. All methods can be called at once. Errors are [hutch.Error]s: NotFound for an image
// that the owner cannot see, Exhausted for a limit or a full disk, Denied for a registry that is not allowed,
// Unavailable for a registry that does not answer.
type Store struct{}

// Open opens the store in a folder, which is made when it is missing. One process at a time can have it open; the
// caller sees to that. Temporary files of an earlier process are removed.
func Open(dir string, o Options) (*Store, error) { return nil, errMissing }

// Close ends all pulls and waits for them.
func (s *Store) Close() error { return errMissing }

// Images are all images that an owner sees, the most recently added first. The server sees those of all owners.
func (s *Store) Images(owner string) ([]Image, error) { return nil, errMissing }

// Inspect finds an image of the store: the owner's own before a public one.
func (s *Store) Inspect(owner string, ref Reference) (Image, error) { return Image{}, errMissing }

// Tag gives an image of the store another name. The name moves there when another image of the owner has it. Tagging
// a public image makes a record of the owner's own.
func (s *Store) Tag(owner string, source, target Reference) error { return errMissing }

// Remove takes a name from an image of the owner, and removes the image with its last name. By digest it removes the
// image with all its names. An image in use is not removed: the error is of kind [hutch.Conflict].
func (s *Store) Remove(owner string, ref Reference) error { return errMissing }

// PruneOptions say which images, of those that are not in use, are removed. Nothing is removed when all are zero.
type PruneOptions struct {
	Unnamed bool          // those without a name
	Unused  time.Duration // those that were not used for so long
	Bytes   int64         // the longest unused, until the files of the store take no more than that
	Roots   time.Duration // root file systems of images that were not used for so long; the images stay
}

// Pruned is what a prune removed.
type Pruned struct {
	Images []Image `json:"images"`
	Bytes  int64   `json:"bytes"` // that are free on disk now
}

// Prune removes images of an owner; those of all owners for the server.
func (s *Store) Prune(ctx context.Context, owner string, o PruneOptions) (Pruned, error) {
	return Pruned{}, errMissing
}

// Use keeps an image and its root file system from being removed until release is called. It is called for each
// sandbox that begins with the image, also when the server starts and finds the sandbox.
func (s *Store) Use(digest string) (release func()) { return func() {} }

// Root returns the path of the image's root file system, an EROFS file, which is made first when it is missing. Call
// Use before, so that it stays.
func (s *Store) Root(ctx context.Context, owner, digest string) (path string, err error) {
	return "", errMissing
}

// Policy says when a pull asks the registry.
type Policy string

const (
	Missing Policy = "missing" // when the store does not have the reference; the default
	Always  Policy = "always"  // each time; layers that are present are kept
	Never   Policy = "never"
)

// PullOptions are what a pull needs to know besides the reference.
type PullOptions struct {
	Owner       string
	Policy      Policy
	Platform    string         // linux/arm64 or linux/arm/v7; empty is the server's
	Credentials Credentials    // nil is nobody's
	Allowed     []string       // registries that this caller can use, within those of the store; empty allows all of these
	Progress    func(Progress) // called by one goroutine at a time; must not wait
}

// Progress is how far a pull or a push is.
type Progress struct {
	Layer string `json:"layer"` // digest
	Done  int64  `json:"done"`  // bytes
	Total int64  `json:"total"` // bytes
	State string `json:"state"` // present, downloading, done, uploading
}

// Credentials return what a registry is told about the caller; false is nothing.
type Credentials func(registry string) (Credential, bool)

// Credential is a name and a password, or one of the tokens that a registry gave.
type Credential struct {
	Username, Password string
	IdentityToken      string // exchanged for access
	RegistryToken      string // sent as it is
}

// DockerConfig reads the "auths" of Docker's config.json. Programs that it names for credentials are not run.
func DockerConfig(config []byte) (Credentials, error) { return nil, errMissing }

// Pull makes an image present. The reference is resolved to a digest once. Callers that pull the same at once share
// one transfer, which ends when the last of them has gone.
func (s *Store) Pull(ctx context.Context, ref Reference, o PullOptions) (Image, error) {
	return Image{}, errMissing
}

// LoadOptions are what a load needs to know besides the file.
type LoadOptions struct {
	Owner    string
	Name     Reference // another name for the image; the zero value keeps the names in the file
	Platform string    // as in [PullOptions]
}

// Load reads images from a tar stream: an OCI layout, or what `docker save` writes, plain or compressed.
func (s *Store) Load(ctx context.Context, r io.Reader, o LoadOptions) ([]Image, error) {
	return nil, errMissing
}

// Save writes images as one tar stream that is an OCI layout and can be read by `docker load`, too.
func (s *Store) Save(ctx context.Context, w io.Writer, owner string, refs ...Reference) error {
	return errMissing
}

// PushOptions are what a push needs to know besides the reference.
type PushOptions struct {
	Owner       string
	Credentials Credentials
	Allowed     []string
	Progress    func(Progress)
}

// Push sends an image of the store to the registry in its reference, and returns the digest under which that has it.
func (s *Store) Push(ctx context.Context, ref Reference, o PushOptions) (digest string, err error) {
	return "", errMissing
}
