package hutch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// BuildRequest asks for an image of a Dockerfile.
type BuildRequest struct {
	Name string `json:"name,omitempty"` // name of the image; the name moves if another image has it
	// File is the path of the Dockerfile in the context; default Dockerfile. Dockerfile is its text, if it is not in
	// the context.
	File       string            `json:"file,omitempty"`
	Dockerfile string            `json:"dockerfile,omitempty"`
	Args       map[string]string `json:"args,omitempty"`   // values of ARG
	Target     string            `json:"target,omitempty"` // the stage to build; default the last
	Labels     map[string]string `json:"labels,omitempty"` // labels of the image
	NoCache    bool              `json:"noCache,omitempty"`
	Pull       PullPolicy        `json:"pull,omitempty"` // for the images in FROM; default missing
	// Secrets are values by the id that RUN --mount=type=secret names. They are in no image and no cache.
	Secrets map[string]string `json:"secrets,omitempty"`
	Network Network           `json:"network,omitzero"` // what a RUN can reach; default: the server's
	Limits  Limits            `json:"limits,omitzero"`  // limits of the sandbox of a RUN
	Runtime string            `json:"runtime,omitempty"`
	Timeout Seconds           `json:"timeout,omitempty"` // time limit of the whole build; default 3600
}

// Bounds of a request for a build, in bytes.
const (
	MaxDockerfile   = 1 << 20
	maxBuildArgs    = 64 << 10
	maxBuildSecrets = 1 << 20
	maxBuildTime    = 6 * 60 * 60 // seconds
)

// Check refuses a request that no server can answer.
func (r BuildRequest) Check() error {
	if err := r.Network.refuseHidden("a build"); err != nil {
		return err
	}
	var args, secrets int
	for name, value := range r.Args {
		args += len(name) + len(value)
	}
	for name, value := range r.Secrets {
		secrets += len(name) + len(value)
	}
	switch {
	case len(r.Dockerfile) > MaxDockerfile:
		return Errorf(Exhausted, "the Dockerfile has more than %d KiB: make it smaller", MaxDockerfile>>10).With("limit", "dockerfile")
	case r.File != "" && r.Dockerfile != "":
		return Errorf(Invalid, "file and dockerfile are both given: give the path in the context, or the text").Naming(AboutField, "file")
	case len(r.File) > 4095:
		return Errorf(Invalid, "the path of the Dockerfile has over 4095 bytes").Naming(AboutField, "file")
	case args > maxBuildArgs:
		return Errorf(Exhausted, "the build arguments have more than %d KiB together: put large values into files", maxBuildArgs>>10).With("limit", "build arguments")
	case secrets > maxBuildSecrets:
		return Errorf(Exhausted, "the build secrets have more than %d KiB together: give fewer", maxBuildSecrets>>10).With("limit", "build secrets")
	case slices.Contains(slices.Collect(maps.Keys(r.Args)), "") || strings.Contains(r.Target, "\n"):
		return Errorf(Invalid, "a build argument has no name: write NAME=VALUE").Naming(AboutField, "args")
	case !(r.Timeout >= 0 && r.Timeout <= maxBuildTime):
		return Errorf(Invalid, "timeout is in seconds, not negative and at most %d", maxBuildTime).Naming(AboutField, "timeout")
	}
	return cmp.Or(checkOptionalImage(r.Name), r.Pull.Check(), r.Limits.Check())
}

// BuildState says what a BuildEvent reports.
type BuildState string

const (
	BuildStarted BuildState = "started"
	BuildLog     BuildState = "log"     // Text is output of the command
	BuildCached  BuildState = "cached"  // the cache has the step's result
	BuildDone    BuildState = "done"    // the step took Seconds
	BuildFailed  BuildState = "failed"  // Text says why
	BuildWarning BuildState = "warning" // Text is about the Dockerfile; Step is 0
)

// BuildEvent is something that happens in a build.
type BuildEvent struct {
	Step    int        `json:"step"`           // counted from 1
	Name    string     `json:"name,omitempty"` // name of the step, such as [2/4] RUN make, in the event started
	State   BuildState `json:"state"`
	Text    string     `json:"text,omitempty"`
	Seconds Seconds    `json:"seconds,omitempty"` // time since the step began
}
