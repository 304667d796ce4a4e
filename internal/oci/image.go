package oci

import (
	"time"

	"hutch/internal/oci/rootfs"
)

// Image is the store's record of one image of one owner.
type Image struct {
	Digest       string      `json:"digest"`     // digest of the manifest for the image's platform: sha256:HEX
	References   []Reference `json:"references"` // its names; can be empty
	Owner        string      `json:"owner,omitempty"`
	Size         int64       `json:"size"`    // bytes of its blobs, compressed as received
	Created      time.Time   `json:"created"` // as the image reports it; can be zero
	Added        time.Time   `json:"added"`
	Used         time.Time   `json:"used"` // the last pull, root or use
	Architecture string      `json:"architecture"`
	OS           string      `json:"os"`
	Config       Config      `json:"config"`
	Layers       []Layer     `json:"layers"`         // from the base up
	Step         bool        `json:"step,omitempty"` // the result of a build step, for later builds
}

// Layer is one layer of an image.
type Layer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Config is an image's settings for its programs.
type Config struct {
	Env          []string          `json:"env,omitempty"` // KEY=VALUE
	WorkingDir   string            `json:"workingDir,omitempty"`
	User         string            `json:"user,omitempty"` // in the form of [Store.User]
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	Shell        []string          `json:"shell,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	ExposedPorts []string          `json:"exposedPorts,omitempty"` // 80/tcp, sorted
	Volumes      []string          `json:"volumes,omitempty"`      // sorted
	StopSignal   string            `json:"stopSignal,omitempty"`
	Healthcheck  *Healthcheck      `json:"healthcheck,omitempty"`
}

// Healthcheck is the command with which an image checks its program. Zero times stand for Docker's defaults.
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
