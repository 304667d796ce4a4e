package hutch

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Images are the verbs on images: root file systems that sandboxes can have instead of the host's programs. An image is
// pulled from a registry or loaded from an archive. Every owner has separate images; all owners can use those that the
// server's administrators share.
//
// An image is named by a reference: python:3.12-slim, ghcr.io/x/y@sha256:…, or the id (digest) of an image that the
// server has. A sandbox keeps the digest: if the name moves to another image later, the sandbox does not change.
//
// Errors: Invalid for a name that is not a reference; NotFound for an image that neither the server nor its registry
// has; Denied for a registry that the server does not allow, or that requires other credentials; Exhausted for an image
// over a limit, or a full disk; Conflict for the removal of an image that is used; Unavailable for a registry that does
// not answer; Unsupported when the server keeps no images.
type Images interface {
	// PullImage gets an image from its registry, or returns the one that the server has, depending on req.Pull. Calls
	// for one image share one transfer. If progress is not nil, it gets the state of a layer each time that it changes;
	// an error from it ends the call.
	PullImage(ctx context.Context, req PullRequest, progress func(Transfer) error) (Image, error)

	// LoadImages reads the images of an archive in the format of docker save or an OCI layout, plain or compressed with
	// gzip or zstd. If name is not empty, the image gets that name too.
	LoadImages(ctx context.Context, name string, r io.Reader) ([]Image, error)

	// CommitImage makes an image from a sandbox: the sandbox's image with the files that were written, and without the
	// files that were deleted. It keeps the configuration of the sandbox's image. A sleeping sandbox wakes. A sandbox
	// of the image host is Unsupported.
	CommitImage(ctx context.Context, sandbox string, req CommitRequest) (Image, error)

	// CommitSnapshot does the same as CommitImage, with the files of a snapshot or template, by its id or name. No
	// sandbox starts. A snapshot does not record which files of the image were deleted: they are in the new image
	// again. The image belongs to the caller, who must be able to use the image that the snapshot began with.
	CommitSnapshot(ctx context.Context, snapshot string, req CommitRequest) (Image, error)

	// BuildImage builds an image from a Dockerfile and the files of a context: a tar archive, plain or compressed with
	// gzip or zstd. Files that its .dockerignore names are left out. Each RUN is a command in a sandbox of the caller;
	// no part of a build runs on the server itself. If progress is not nil, it gets the events of the steps, in order;
	// an error from it ends the build. A step with unchanged inputs is not repeated. A build that fails leaves no image
	// and no sandbox; completed steps are kept, and the next build continues after them. A command that fails is
	// Invalid, a missing file NotFound, and a feature that Hutch cannot build Unsupported.
	BuildImage(ctx context.Context, req BuildRequest, files io.Reader, progress func(BuildEvent) error) (Image, error)

	// Builds lists the caller's running builds and the newest of those that have ended, oldest first. A server keeps
	// them in memory, with a limit for each owner.
	Builds(ctx context.Context) ([]Build, error)

	// BuildLogs passes the output of a build to out and returns the build's record. With follow, it returns only after
	// the build has ended. Of long output, only the beginning and the end are kept. Secrets of the build are redacted.
	// An error from out ends the call. A missing build is NotFound.
	BuildLogs(ctx context.Context, build string, follow bool, out func(BuildEvent) error) (Build, error)

	// DeleteBuild ends a running build, waits for its end and keeps its record. Of a build that has ended, it removes
	// the record. A missing build is NotFound.
	DeleteBuild(ctx context.Context, build string) error

	// SaveImage writes an image as an archive that docker load and LoadImages read.
	SaveImage(ctx context.Context, image string, w io.Writer) error

	// PushImage sends an image to a registry.
	PushImage(ctx context.Context, req PushRequest, progress func(Transfer) error) error

	// TagImage gives an image another name.
	TagImage(ctx context.Context, image, name string) (Image, error)

	// Image returns the record of an image that the server has.
	Image(ctx context.Context, image string) (Image, error)

	// Images lists the caller's images and the shared ones, oldest first.
	Images(ctx context.Context) ([]Image, error)

	// DeleteImage removes a name, and with its last name the image. An image is Conflict if a sandbox or a snapshot was
	// created from it. A missing image is NotFound.
	DeleteImage(ctx context.Context, image string) error

	// PruneImages removes the caller's images that were not used for a time.
	PruneImages(ctx context.Context, req PruneRequest) (Pruned, error)
}

// PullPolicy says when to ask an image's registry.
type PullPolicy string

const (
	PullMissing PullPolicy = "missing" // if the server does not have the image: the default
	PullAlways  PullPolicy = "always"  // each time; layers that the server has are not sent again
	PullNever   PullPolicy = "never"
)

// Check refuses a policy that does not exist.
func (p PullPolicy) Check() error {
	switch p {
	case "", PullMissing, PullAlways, PullNever:
		return nil
	}
	return Errorf(Invalid, "there is no pull policy %.40q: use missing, always or never", string(p)).Naming(AboutField, "pull")
}

// RegistryLogin is how the server signs in to a registry. The zero value uses the caller's secret for that registry, if
// there is one.
type RegistryLogin struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // or a token
}

// maxLogin bounds a name and a password of a registry, in bytes.
const maxLogin = 16 << 10

// Check refuses a login that no registry can accept.
func (l RegistryLogin) Check() error {
	switch {
	case len(l.Username)+len(l.Password) > maxLogin:
		return Errorf(Invalid, "the login of the registry has over %d bytes", maxLogin).Naming(AboutField, "password")
	case l.Username == "" && l.Password != "":
		return Errorf(Invalid, "the password has no username: give both").Naming(AboutField, "username")
	}
	return nil
}

// PullRequest asks for an image of a registry.
type PullRequest struct {
	Image string     `json:"image"`
	Pull  PullPolicy `json:"pull,omitempty"` // default always
	// Shared makes the image open to all owners. Only administrators can set it.
	Shared bool `json:"shared,omitempty"`
	RegistryLogin
}

// Check refuses a request that no server can answer.
func (r PullRequest) Check() error {
	if err := CheckImage(r.Image); err != nil {
		return err
	}
	if err := r.Pull.Check(); err != nil {
		return err
	}
	return r.RegistryLogin.Check()
}

// PushRequest asks for an image to be sent to a registry.
type PushRequest struct {
	Image string `json:"image"`
	To    string `json:"to,omitempty"` // the reference in the registry; default: Image
	RegistryLogin
}

// Check refuses a request that no server can answer.
func (r PushRequest) Check() error {
	if err := CheckImage(r.Image); err != nil {
		return err
	}
	if r.To != "" {
		if err := CheckImage(r.To); err != nil {
			return err
		}
	}
	return r.RegistryLogin.Check()
}

// TagRequest gives an image another name.
type TagRequest struct {
	Image string `json:"image"`
	Name  string `json:"name"`
}

// Check refuses a request that no server can answer.
func (r TagRequest) Check() error {
	if err := CheckImage(r.Image); err != nil {
		return err
	}
	return CheckImage(r.Name)
}

// CommitRequest asks for an image of the files of a sandbox or snapshot.
type CommitRequest struct {
	Name string `json:"name"` // name of the new image; the name moves if another image has it
}

// Check refuses a request that no server can answer.
func (r CommitRequest) Check() error { return CheckImage(r.Name) }

// PruneRequest says which images to remove.
type PruneRequest struct {
	// Unused is for how long an image was not used; 0 selects every image that is not in use now.
	Unused Seconds `json:"unused,omitempty"`
}

// Check refuses a request that no server can answer.
func (r PruneRequest) Check() error {
	if !(r.Unused >= 0 && r.Unused <= maxLifetime) {
		return Errorf(Invalid, "unused is in seconds, not negative and at most %d", maxLifetime).Naming(AboutField, "unused")
	}
	return nil
}

// Pruned is what PruneImages removed.
type Pruned struct {
	Images []string `json:"images"` // ids; never null in JSON
	Freed  int64    `json:"freed"`  // bytes of disk
}

// Transfer is the progress of one layer of an image.
type Transfer struct {
	Layer string `json:"layer"` // digest; empty for the whole image
	Done  int64  `json:"done"`  // bytes
	Total int64  `json:"total"` // bytes; 0 when unknown
	// State is downloading, uploading, verifying, unpacking or done.
	State string `json:"state"`
}

// Image is the record of an image.
type Image struct {
	ID           string      `json:"id"`    // digest of the manifest: sha256:…
	Names        []string    `json:"names"` // references; never null in JSON
	Owner        string      `json:"owner,omitempty"`
	Shared       bool        `json:"shared,omitempty"`
	Size         int64       `json:"size"`                // bytes on disk, including layers that other images share
	CreatedAt    *time.Time  `json:"createdAt,omitempty"` // when it was built, if the image says so
	PulledAt     time.Time   `json:"pulledAt"`
	UsedAt       time.Time   `json:"usedAt"` // when a sandbox was last created from it
	Architecture string      `json:"architecture"`
	Layers       []string    `json:"layers"` // digests; never null in JSON
	Config       ImageConfig `json:"config"`
}

// ImageConfig is an image's settings for its programs.
type ImageConfig struct {
	Env          []string          `json:"env,omitempty"` // NAME=VALUE
	WorkingDir   string            `json:"workingDir,omitempty"`
	User         string            `json:"user,omitempty"`
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Command      []string          `json:"command,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	ExposedPorts []string          `json:"exposedPorts,omitempty"` // such as 8080/tcp
	StopSignal   string            `json:"stopSignal,omitempty"`
	Healthcheck  *HealthCheck      `json:"healthcheck,omitempty"`
}

// Program returns the command line that starts the image's program: its ENTRYPOINT, and CMD after it. It is empty if
// the image names none.
func (c ImageConfig) Program() string {
	return CommandLine(slices.Concat(c.Entrypoint, c.Command)...)
}

// TCPPorts returns the ports that the image names for TCP, in order.
func (c ImageConfig) TCPPorts() []int {
	var ports []int
	for _, text := range c.ExposedPorts {
		number, protocol, _ := strings.Cut(text, "/")
		port, err := strconv.Atoi(number)
		if err == nil && CheckPort(port) == nil && (protocol == "" || strings.EqualFold(protocol, "tcp")) && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports
}

// MaxImageName is the longest reference of an image, in bytes.
const MaxImageName = 512

var imageName = pattern(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$`)

// CheckImage refuses text that cannot be a reference of an image. The server does the full check.
func CheckImage(ref string) error {
	if err := refuseImageFile(ref); err != nil {
		return err
	}
	switch {
	case ref == "":
		return Errorf(Invalid, "the image has no name: give one, such as python:3.12-slim").Naming(AboutField, "image")
	case len(ref) > MaxImageName || !imageName().MatchString(ref) || strings.Contains(ref, "//"):
		return Errorf(Invalid, "%.120q is not an image reference: write it as python:3.12-slim or ghcr.io/owner/name@sha256:…", ref).Naming(AboutField, "image")
	}
	return nil
}

// ImageFile returns the path in the name of an image that is a file or a folder of the client: oci:DIR,
// docker-archive:FILE or oci-archive:FILE. Servers do not accept such names: a client sends the file with LoadImages,
// and uses the id of the image.
func ImageFile(image string) (path string, ok bool) {
	kind, path, ok := strings.Cut(image, ":")
	return path, ok && slices.Contains([]string{"oci", "docker-archive", "oci-archive"}, kind)
}

func refuseImageFile(ref string) error {
	path, ok := ImageFile(ref)
	if !ok {
		return nil
	}
	return Errorf(Invalid, "the image %.200q is a file of the client: `hutch create --image` and `hutch run --image` send such a file, and a program loads it first (`hutch image load %.200s`, PUT /v1/images/archive) and names the image by the id in the answer", ref, path).Naming(AboutField, "image")
}

func checkOptionalImage(ref string) error {
	if ref == "" {
		return nil
	}
	return CheckImage(ref)
}

// RegistrySecret returns the name of the secret that holds an owner's login for a registry, as USERNAME:PASSWORD:
// REGISTRY_GHCR_IO for ghcr.io. Two registries never have the same name, so neither can get the other's login.
func RegistrySecret(registry string) string {
	return "REGISTRY_" + registrySecretParts.Replace(strings.ToUpper(registry))
}

// registrySecretParts replaces characters that a secret's name cannot have. No host name has two dots in a row, and
// none of its labels begins or ends with a hyphen.
var registrySecretParts = strings.NewReplacer(".", "_", "-", "__", ":", "___", "[", "____", "]", "____")
