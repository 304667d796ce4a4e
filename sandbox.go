package hutch

import (
	"cmp"
	"strconv"
	"time"
)

// Seconds is a duration as the APIs write it: a number of seconds.
type Seconds float64

// Duration converts s to Go's own type.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// String formats s as the APIs do: without an exponent, also for a million.
func (s Seconds) String() string { return strconv.FormatFloat(float64(s), 'f', -1, 64) }

// InSeconds converts a duration to the APIs' type.
func InSeconds(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Status is the state of a sandbox. Only the engine changes it.
type Status string

const (
	Creating   Status = "creating"
	Running    Status = "running"
	Paused     Status = "paused"     // everything in it is frozen, in memory; any use resumes it
	Hibernated Status = "hibernated" // memory, processes and files are on disk; any use wakes it
	Stopped    Status = "stopped"    // files are on disk; any use starts it again
	Failed     Status = "error"      // the runtime or the agent died; Reason says why
	Destroyed  Status = "destroyed"
)

// Sleeps reports whether a sandbox with that status runs no program, and its state is on disk.
func (s Status) Sleeps() bool { return s == Hibernated || s == Stopped }

// IdleAction is the action for a sandbox after SleepAfter without use.
type IdleAction string

const (
	// IdleHibernate keeps everything. If the runtime cannot keep memory, it keeps the files, as IdleStop does.
	IdleHibernate IdleAction = "hibernate"
	// IdleStop ends the processes and keeps the files.
	IdleStop IdleAction = "stop"
	// IdleDestroy keeps nothing.
	IdleDestroy IdleAction = "destroy"
)

// Limits bound one sandbox. Zero means the default.
type Limits struct {
	CPU       float64 `json:"cpu,omitempty"`       // cores; default 1
	Memory    int     `json:"memory,omitempty"`    // MiB; default 512, at least 32
	Disk      int     `json:"disk,omitempty"`      // MiB of written files; default 1024, on native half of Memory
	PIDs      int     `json:"pids,omitempty"`      // processes and threads; default 512
	Processes int     `json:"processes,omitempty"` // background processes at once; default 10
}

const (
	minMemory = 32      // MiB
	maxMemory = 1 << 30 // MiB: no machine has more, in memory or on disk
	maxPIDs   = 1 << 22 // Linux's highest number
	maxLive   = 1000    // background processes: as many as one list holds
)

// Check refuses limits that no sandbox can have.
func (l Limits) Check() error {
	switch {
	case !(l.CPU >= 0 && l.CPU <= 1024) || l.CPU > 0 && l.CPU < 0.01:
		return Errorf(Invalid, "limits.cpu is %v: give cores, from 0.01 up, or leave it out for 1", l.CPU)
	case l.Memory < 0 || l.Memory > maxMemory || l.Memory > 0 && l.Memory < minMemory:
		return Errorf(Invalid, "limits.memory is %d MiB: give at least %d, or leave it out for 512", l.Memory, minMemory)
	case l.Disk < 0 || l.Disk > maxMemory:
		return Errorf(Invalid, "limits.disk is %d MiB: it may not be negative or over %d", l.Disk, maxMemory)
	case l.Processes < 0 || l.Processes > maxLive:
		return Errorf(Invalid, "limits.processes is %d: give 1 to %d, or leave it out for 10", l.Processes, maxLive)
	case l.PIDs < 0 || l.PIDs > maxPIDs || l.PIDs > 0 && l.PIDs < 8:
		return Errorf(Invalid, "limits.pids is %d: give 8 to %d, or leave it out for 512", l.PIDs, maxPIDs)
	}
	return nil
}

// CreateRequest asks for a sandbox. If ID names an existing sandbox, that sandbox is returned unchanged and the rest of
// the request is ignored.
type CreateRequest struct {
	ID          string `json:"sandboxId,omitempty"` // minted when empty
	NormalizeID bool   `json:"normalizeId,omitempty"`
	// Image is "host", the default, which stands for this server's programs; or it is the reference of an image: see
	// [Images].
	Image string `json:"image,omitempty"`
	// Pull says when to ask the image's registry; default PullMissing.
	Pull    PullPolicy `json:"pull,omitempty"`
	Runtime string     `json:"runtime,omitempty"` // "gvisor", "native", "docker" or "kubernetes"; default: the server's
	// InstanceType names a size, such as "basic": see [Service.InstanceTypes]. Values that are set in Limits override
	// those of the size.
	InstanceType string `json:"instanceType,omitempty"`
	// User is the user that commands run as: a name of the image's /etc/passwd or a number, or one of them with a
	// group, as in "1000:1000". Default: the image's user. The image "host" has only the user 1000.
	User string `json:"user,omitempty"`
	// Snapshot is the id or name of the snapshot that the sandbox starts from: it gets the files, the processes and
	// the memory. Image, user, runtime and limits are those of the snapshot, as are the variables that Env does not set.
	Snapshot string `json:"snapshot,omitempty"`
	// Template is the name of the template that the sandbox starts from. It works as Snapshot does, and the template's
	// program is ready. Image can name a template, too.
	Template string `json:"template,omitempty"`
	// FilesOnly takes only the files of the snapshot. Use it when the memory was saved by another version of Hutch,
	// or programs on the host have changed.
	FilesOnly bool              `json:"filesOnly,omitempty"`
	Env       map[string]string `json:"env,omitempty"` // for all programs inside
	// Secrets are given to every command, process and context as environment variables: each is NAME, or
	// VARIABLE=NAME. Their values are looked up when a program starts, and are not part of the sandbox.
	Secrets []string `json:"secrets,omitempty"`
	// Volumes are put into folders before the first program starts: see [Volumes]. Forks and copies of the sandbox have
	// the files, and not the volumes.
	Volumes    []VolumeMount     `json:"volumes,omitempty"`
	Network    Network           `json:"network,omitzero"` // what it can reach; default: the server's
	Limits     Limits            `json:"limits,omitzero"`
	KeepAlive  bool              `json:"keepAlive,omitempty"`  // never idles
	SleepAfter Seconds           `json:"sleepAfter,omitempty"` // without use; default 600
	OnIdle     IdleAction        `json:"onIdle,omitempty"`     // default hibernate
	Timeout    Seconds           `json:"timeout,omitempty"`    // hard lifetime, after which it is destroyed; default none
	Labels     map[string]string `json:"labels,omitempty"`
	// NodeSelector are labels that the sandbox's node must have, in a fleet: see [Node]. A node that it moves to must
	// have them, too.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are taints of nodes, with their values, that do not keep the sandbox away.
	Tolerations map[string]string `json:"tolerations,omitempty"`
}

// Check refuses a request that no server can answer.
func (r CreateRequest) Check() error {
	id := r.ID
	if r.NormalizeID {
		id = NormalizeID(id)
	}
	return cmp.Or(
		about("sandboxId", checkOptionalID(id)), checkOptionalImage(r.Image), checkOptionalUser(r.User), r.Pull.Check(), checkOptionalType(r.InstanceType), r.checkTemplate(), checkEnv(r.Env), checkSecretUses(r.Env, r.Secrets), checkLabels(r.Labels),
		r.Limits.Check(), checkLife(r.SleepAfter, r.Timeout, r.OnIdle), checkVolumes(r.Volumes),
		about("nodeSelector", CheckNodeLabels(r.NodeSelector)), about("tolerations", CheckNodeLabels(r.Tolerations)),
	)
}

// about returns err as an error about a field of the request.
func about(field string, err error) error {
	if err == nil {
		return nil
	}
	return AsError(err).Naming(AboutField, field)
}

func (r CreateRequest) checkTemplate() error {
	switch {
	case r.Template == "":
		return nil
	case r.Snapshot != "":
		return Errorf(Invalid, "a sandbox begins as one thing: give template or snapshot").Naming(AboutField, "template")
	}
	return CheckTemplateName(r.Template)
}

// UpdateRequest changes an existing sandbox. Fields that are left out do not change.
type UpdateRequest struct {
	KeepAlive  *bool             `json:"keepAlive,omitempty"`
	SleepAfter *Seconds          `json:"sleepAfter,omitempty"` // 0 is the server's default
	OnIdle     IdleAction        `json:"onIdle,omitempty"`
	Timeout    *Seconds          `json:"timeout,omitempty"` // hard lifetime from now on; 0 means no end
	Labels     map[string]string `json:"labels,omitzero"`   // replaces all labels; empty removes them
	// Env sets environment variables; nil removes one, and variables that it does not name are kept. Programs that
	// start from now on have them; code contexts and sessions have them from their next run on. Running programs keep
	// their environment.
	Env map[string]*string `json:"env,omitempty"`
}

// Check refuses a request that no server can answer.
func (r UpdateRequest) Check() error {
	var sleepAfter, timeout Seconds
	if r.SleepAfter != nil {
		sleepAfter = *r.SleepAfter
	}
	if r.Timeout != nil {
		timeout = *r.Timeout
	}
	return cmp.Or(checkLabels(r.Labels), checkLife(sleepAfter, timeout, r.OnIdle), checkEnvChanges(r.Env))
}

// Sandbox is the record of one sandbox at one moment.
type Sandbox struct {
	ID           string            `json:"sandboxId"`
	Status       Status            `json:"status"`
	Reason       string            `json:"reason,omitempty"` // why Status is error or stopped
	Paused       bool              `json:"paused,omitempty"` // Status is paused
	Owner        string            `json:"owner,omitempty"`
	Image        string            `json:"image"`
	User         string            `json:"user,omitempty"` // as requested; empty for the image's user
	Runtime      string            `json:"runtime"`
	InstanceType string            `json:"instanceType,omitempty"` // the type that it was created with
	Template     string            `json:"template,omitempty"`     // name of the template that it started from
	Snapshot     string            `json:"snapshot,omitempty"`     // id of the snapshot that it started from
	Parent       string            `json:"parent,omitempty"`       // the sandbox that it is a copy of: through a snapshot, or as a fork
	FilesOnly    bool              `json:"filesOnly,omitempty"`    // it began with only the files of that sandbox, without its memory
	CreatedAt    time.Time         `json:"createdAt"`
	LastUsedAt   time.Time         `json:"lastUsedAt"`
	ExpiresAt    *time.Time        `json:"expiresAt,omitempty"` // end of the hard lifetime
	Uptime       Seconds           `json:"uptime"`              // time since its last start; 0 when it does not run
	Resources    Resources         `json:"resources"`
	Environment  Environment       `json:"environment"`
	KeepAlive    bool              `json:"keepAlive"`
	SleepAfter   Seconds           `json:"sleepAfter"`
	OnIdle       IdleAction        `json:"onIdle"`
	Health       Health            `json:"health"`
	Limits       Limits            `json:"limits"`
	Network      Network           `json:"network"`
	Labels       map[string]string `json:"labels,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"` // labels that its node must have
	Tolerations  map[string]string `json:"tolerations,omitempty"`  // taints that its node can have
	Volumes      []VolumeMount     `json:"volumes,omitempty"`
	Processes    []Process         `json:"processes"` // never null in JSON
}

// Resources is the current resource use of a sandbox.
type Resources struct {
	CPU    float64 `json:"cpu"`    // percent of one core since the last reading
	Memory float64 `json:"memory"` // MiB
}

// Environment says which credentials are present, never their values.
type Environment struct {
	HasAnthropicCredentials bool `json:"hasAnthropicCredentials"`
}

// Health is the result of the last check of the agent inside.
type Health string

const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy" // the agent does not answer, or has died
	Asleep    Health = "asleep"    // it sleeps, so nothing runs
)

// Filter chooses sandboxes for a list. The zero Filter chooses all except destroyed ones.
type Filter struct {
	Status        Status    `json:"status,omitempty"`
	Owner         string    `json:"owner,omitempty"`
	CreatedAfter  time.Time `json:"createdAfter,omitzero"`
	CreatedBefore time.Time `json:"createdBefore,omitzero"`
	// Labels are labels that a sandbox must have, with these values.
	Labels map[string]string `json:"labels,omitempty"`

	// ID chooses one sandbox.
	ID string `json:"-"`
	// Brief lists only records, without resources, processes and health. It calls no sandbox, so it is fast even when
	// sandboxes are slow.
	Brief bool `json:"-"`
}

// Check refuses a filter that matches nothing.
func (f Filter) Check() error {
	switch f.Status {
	case "", Creating, Running, Paused, Hibernated, Stopped, Failed, Destroyed:
		return nil
	}
	return Errorf(Invalid, "there is no status %.80q: use creating, running, paused, hibernated, stopped or error", f.Status)
}

// Match reports whether the filter chooses s.
func (f Filter) Match(s Sandbox) bool {
	for name, value := range f.Labels {
		if got, ok := s.Labels[name]; !ok || got != value {
			return false
		}
	}
	return (f.ID == "" || f.ID == s.ID) &&
		(f.Status == "" || f.Status == s.Status) &&
		(f.Owner == "" || f.Owner == s.Owner) &&
		(f.CreatedAfter.IsZero() || s.CreatedAt.After(f.CreatedAfter)) &&
		(f.CreatedBefore.IsZero() || s.CreatedAt.Before(f.CreatedBefore))
}

// Destruction is the receipt for a destroyed sandbox.
type Destruction struct {
	ID                string    `json:"sandboxId"`
	Status            Status    `json:"status"` // always Destroyed
	ResourcesReleased bool      `json:"resourcesReleased"`
	DestroyedAt       time.Time `json:"destroyedAt"`
}
