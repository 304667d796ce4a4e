package hutch

import (
	"cmp"
	"slices"
	"strings"
)

// Template has the settings that a template gives to the sandboxes made from it. If the snapshot has no memory, each
// new sandbox starts the program; otherwise the program is running in the snapshot already.
type Template struct {
	// Start is the command line of a background process that runs in every sandbox.
	Start string `json:"start,omitempty"`
	// Ready says when Start is ready; by default, as soon as it has started.
	Ready *WaitRequest `json:"ready,omitempty"`
	// Care is the health check and stop signal of the process of Start; with Entrypoint, the default is the image's.
	Care
	// Warm are the interpreters that are started in advance and wait for code: LANGUAGE or LANGUAGE=MODULE,MODULE.
	Warm []string `json:"warm,omitempty"`
	// Labels are labels of the sandboxes, in addition to their own.
	Labels map[string]string `json:"labels,omitempty"`
	// Volumes are mounted in the sandboxes. A name means a volume of the owner who creates the sandbox. A volume of the
	// create overrides one with the same name or path. The template itself has no files of the volumes.
	Volumes []VolumeMount `json:"volumes,omitempty"`
	// MaxSandboxes is how many sandboxes of the template there can be at once, of all owners, awake or asleep; 0 is
	// no limit.
	MaxSandboxes int `json:"maxSandboxes,omitempty"`
}

// TemplateRequest asks for a template. It is made from a sandbox: the existing one in From, or a new one with the
// settings here, as soon as Start is ready. The new sandbox is destroyed afterwards.
type TemplateRequest struct {
	// Name is NAME or NAME:TAG, unique among the owner's snapshots. NAME:latest is the same as NAME.
	Name string `json:"name"`
	// Replace lets the new template take the name of an older one, which is deleted once the new one exists.
	Replace bool `json:"replace,omitempty"`
	// From is an existing sandbox. The template is made from its present state.
	From string `json:"from,omitempty"`

	// The following are as in CreateRequest, for the sandbox that the template is made from and all sandboxes made from
	// the template.

	Image        string            `json:"image,omitempty"`
	Pull         PullPolicy        `json:"pull,omitempty"`
	User         string            `json:"user,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	InstanceType string            `json:"instanceType,omitempty"`
	Limits       Limits            `json:"limits,omitzero"`
	Snapshot     string            `json:"snapshot,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Secrets      []string          `json:"secrets,omitempty"`
	Network      Network           `json:"network,omitzero"`

	Template
	// Entrypoint starts the program that the image names: its ENTRYPOINT and CMD.
	Entrypoint bool `json:"entrypoint,omitempty"`

	FilesOnly bool    `json:"filesOnly,omitempty"` // leave memory out
	TTL       Seconds `json:"ttl,omitempty"`       // how long the template is kept; default: until it is deleted
	// Shared is as in SnapshotRequest. A shared template can have no Secrets.
	Shared bool `json:"shared,omitempty"`
}

// maxWarm limits the waiting interpreters of one template.
const maxWarm = 8

// Check refuses a request that no server can answer.
func (r TemplateRequest) Check() error {
	if err := cmp.Or(CheckTemplateName(r.Name), checkOptionalID(r.From), r.SandboxRequest().Check(),
		SnapshotRequest{TTL: r.TTL}.Check(), r.Network.refuseHidden("a template"), r.Template.check()); err != nil {
		return err
	}
	begins := r.SandboxRequest()
	begins.Labels = nil
	switch {
	case r.From != "" && !isZeroCreate(begins):
		return Errorf(Invalid, "from names a sandbox, whose image, runtime, limits, network and environment the template has: leave those out").Naming(AboutField, "from")
	case r.From != "" && (r.Entrypoint || len(r.Warm) > 0):
		return Errorf(Invalid, "from names a sandbox, and nothing is started in it: leave out entrypoint and warm, or from").Naming(AboutField, "from")
	case r.Entrypoint && r.Start != "":
		return Errorf(Invalid, "give one of start and entrypoint").Naming(AboutField, "entrypoint")
	case r.Care != (Care{}) && r.Start == "" && !r.Entrypoint:
		return Errorf(Invalid, "stopSignal and health are about the process of start: give start or entrypoint").Naming(AboutField, "start")
	case r.Ready != nil && r.Ready.Healthy && r.Health == nil && !r.Entrypoint:
		return Errorf(Invalid, "ready waits for a health check: give health, too").Naming(AboutField, "ready")
	case r.Ready != nil && r.Start == "" && !r.Entrypoint:
		return Errorf(Invalid, "ready needs start, whose process it waits for").Naming(AboutField, "ready")
	case r.Shared && len(r.Secrets) > 0:
		return Errorf(Invalid, "a template for all owners can have no secrets: its memory would show them").Naming(AboutField, "secrets")
	}
	return nil
}

func isZeroCreate(r CreateRequest) bool {
	return r.Image == "" && r.User == "" && r.Pull == "" && r.Runtime == "" && r.InstanceType == "" && r.Limits == (Limits{}) && r.Snapshot == "" &&
		len(r.Env) == 0 && len(r.Secrets) == 0 && r.Network.IsZero()
}

func (t Template) check() error {
	if err := checkVolumes(t.Volumes); err != nil {
		return err
	}
	switch {
	case t.MaxSandboxes < 0:
		return Errorf(Invalid, "maxSandboxes is %d: give a number, or 0 for no limit", t.MaxSandboxes).Naming(AboutField, "maxSandboxes")
	case len(t.Warm) > maxWarm:
		return Errorf(Invalid, "there are %d interpreters to wait: at most %d are allowed", len(t.Warm), maxWarm).Naming(AboutField, "warm")
	case t.Ready != nil && t.Ready.Port == 0 && t.Ready.Text == "" && t.Ready.Pattern == "" && !t.Ready.Healthy:
		return Errorf(Invalid, "ready says nothing to wait for: give port, text, pattern or healthy").Naming(AboutField, "ready")
	case t.Ready != nil:
		return cmp.Or(t.Ready.Check(), t.Care.check())
	case t.Start != "":
		return ProcessRequest{Command: t.Start, Care: t.Care}.Check()
	}
	return t.Care.check()
}

// SandboxRequest asks for the sandbox that the template is made from.
func (r TemplateRequest) SandboxRequest() CreateRequest {
	return CreateRequest{Image: r.Image, Pull: r.Pull, User: r.User, Runtime: r.Runtime, InstanceType: r.InstanceType, Limits: r.Limits, Snapshot: r.Snapshot,
		Env: r.Env, Secrets: r.Secrets, Network: r.Network, Labels: r.Labels}
}

// CheckTemplateName refuses text that is neither NAME nor NAME:TAG.
func CheckTemplateName(name string) error {
	base, tag, tagged := strings.Cut(name, ":")
	if err := CheckID(base); err != nil || !tagged {
		return err
	}
	return CheckID(tag)
}

// TemplateName returns the canonical form of a template's name: NAME:latest is NAME.
func TemplateName(name string) string { return strings.TrimSuffix(name, ":latest") }

// WithVolumes returns the template's volumes and more volumes. A volume in more replaces a volume of the template with
// the same name or path.
func (t Template) WithVolumes(more []VolumeMount) []VolumeMount {
	kept := slices.DeleteFunc(slices.Clone(t.Volumes), func(m VolumeMount) bool {
		return slices.ContainsFunc(more, func(o VolumeMount) bool { return o.Name == m.Name || o.Path == m.Path })
	})
	return append(kept, more...)
}
