package oci

import (
	"time"

	"hutch/internal/oci/rootfs"
)

// Image is what the store knows about one image of one owner.
type Image struct {
	Digest       string      `json:"digest"`     // digest of the manifest for the image's platform: sha256:HEX
	References   []Reference `json:"references"` // names that lead here; can be empty
	Owner        string      `json:"owner,omitempty"`
	Size         int64       `json:"size"`    // bytes of its blobs, compressed as they were received
	Created      time.Time   `json:"created"` // as the image says; can be zero
	Added        time.Time   `json:"added"`
	Used         time.Time   `json:"used"` // the last pull, root or use
	Architecture string      `json:"architecture"`
	OS           string      `json:"os"`
	Config       Config      `json:"config"`
	Layers       []Layer     `json:"layers"`         // from the base up
	Step         bool        `json:"step,omitempty"` // what a build left behind, to go on from
}

// Layer is one layer of an image.
type Layer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Config is what an image says about the programs in it.
type Config struct {
	Env          []string          `json:"env,omitempty"` // KEY=VALUE
	WorkingDir   string            `json:"workingDir,omitempty"`
	User         string            `json:"user,omitempty"` // as [Store.User] takes it
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	Shell        []string          `json:"shell,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	ExposedPorts []string          `json:"exposedPorts,omitempty"` // 80/tcp, sorted
	Volumes      []string          `json:"volumes,omitempty"`      // sorted
	StopSignal   string            `json:"stopSignal,omitempty"`
	Healthcheck  *Healthcheck      `json:"healthcheck,omitempty"`
}

// Healthcheck is the command by which an image says that its program is well. Zero times stand for Docker's defaults.
type Healthcheck struct {
	Test          []string      `json:"test"` // begins with CMD, CMD-SHELL or NONE
	Interval      time.Duration `json:"interval,omitempty"`
	Timeout       time.Duration `json:"timeout,omitempty"`
	StartPeriod   time.Duration `json:"startPeriod,omitempty"`
	StartInterval time.Duration `json:"startInterval,omitempty"`
	Retries       int           `json:"retries,omitempty"`
}

// User is a user as an image knows it.
type User = rootfs.User
