package hutch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// BuildRequest asks for an image built from a Dockerfile.
type BuildRequest struct {
	Name string `json:"name,omitempty"` // name of the image; the name moves if another image has it
	// File is the path of the Dockerfile in the context; default Dockerfile. Dockerfile is the text of a Dockerfile
	// that is not in the context.
	File       string            `json:"file,omitempty"`
	Dockerfile string            `json:"dockerfile,omitempty"`
	Args       map[string]string `json:"args,omitempty"`   // values of ARG
	Target     string            `json:"target,omitempty"` // the stage to build; default the last
	Labels     map[string]string `json:"labels,omitempty"` // labels of the image
	NoCache    bool              `json:"noCache,omitempty"`
	Pull       PullPolicy        `json:"pull,omitempty"` // for the images in FROM; default missing
	// Secrets are values by the id that RUN --mount=type=secret names. They are never in an image or a cache.
	Secrets map[string]string `json:"secrets,omitempty"`
	Network Network           `json:"network,omitzero"` // what a RUN can reach; default: the server's
	Limits  Limits            `json:"limits,omitzero"`  // limits of the sandbox of a RUN
	Runtime string            `json:"runtime,omitempty"`
	Timeout Seconds           `json:"timeout,omitempty"` // time limit of the whole build; default 3600
	// Detach makes the build continue on a server when the caller's connection ends, if the whole context has arrived
	// before that. BuildLogs returns the build's record and output.
	Detach bool `json:"detach,omitempty"`
}

// Bounds of a request for a build, in bytes, and the number of its secrets.
const (
	MaxDockerfile   = 1 << 20
	maxBuildArgs    = 64 << 10
	maxBuildSecrets = 1 << 20
	mostSecrets     = 1000        // secrets of one build: each is searched for in the output, in several forms
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
	case len(r.Secrets) > mostSecrets:
		return Errorf(Exhausted, "the build has %d secrets, and can have %d: put several values into one", len(r.Secrets), mostSecrets).With("limit", "build secrets")
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
	BuildQueued  BuildState = "queued" // the first event; Build has the id; earlier builds of the owner come first
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
	Build   string     `json:"build,omitempty"`   // id of the build, in the event queued
}

// BuildStatus says whether a build is running or how it ended.
type BuildStatus string

const (
	BuildRunning   BuildStatus = "running" // also while it waits for an earlier build of its owner
	BuildBuilt     BuildStatus = "built"
	BuildBroken    BuildStatus = "failed"
	BuildCancelled BuildStatus = "cancelled"
)

// Build is the record of a build that runs, or has ended.
type Build struct {
	ID        string      `json:"buildId"`
	Name      string      `json:"name,omitempty"` // name of the image, as in the request
	Owner     string      `json:"owner,omitempty"`
	Status    BuildStatus `json:"status"`
	StartedAt time.Time   `json:"startedAt"`
	EndedAt   *time.Time  `json:"endedAt,omitempty"`
	Steps     int         `json:"steps"`           // number of steps that have begun
	Step      string      `json:"step,omitempty"`  // name of the newest step
	Image     string      `json:"image,omitempty"` // id of the built image
	Error     string      `json:"error,omitempty"` // why it failed
}

// BuildOutput is the output of a build.
type BuildOutput struct {
	Build  Build        `json:"build"`
	Events []BuildEvent `json:"events"`
}
