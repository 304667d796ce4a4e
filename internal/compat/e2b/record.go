package e2b

import (
	"math"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

// opening is the data that a client needs to use a sandbox.
type opening struct {
	TemplateID   string  `json:"templateID"`
	SandboxID    string  `json:"sandboxID"`
	ClientID     string  `json:"clientID"`
	EnvdVersion  string  `json:"envdVersion"`
	AccessToken  string  `json:"envdAccessToken"`
	TrafficToken *string `json:"trafficAccessToken"`
	Domain       *string `json:"domain"`
}

// clientID is E2B's name for the machine of a sandbox. Clients only return it.
const clientID = "hutch"

func (s *Server) opened(who *caller.Principal, sb hutch.Sandbox) opening {
	o := opening{
		TemplateID: templateOf(sb), SandboxID: sb.ID, ClientID: clientID, EnvdVersion: seam.EnvdVersion,
		AccessToken: s.accessToken(who.Owner, sb.ID), Domain: s.domain(),
	}
	token := s.trafficToken(who.Owner, sb.ID) // public sandboxes need it too, to reach their interpreter
	o.TrafficToken = &token
	return o
}

func (s *Server) domain() *string {
	if s.opt.Domain == "" {
		return nil
	}
	return &s.opt.Domain
}

// templateOf returns the template that a client requested. For a sandbox of another API, it is the sandbox's origin.
func templateOf(sb hutch.Sandbox) string {
	switch {
	case sb.Labels[labelTemplate] != "":
		return sb.Labels[labelTemplate]
	case sb.Template != "":
		return sb.Template
	}
	return sb.Image
}

// listed is a sandbox in a list.
type listed struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	Volumes     []volumeMount     `json:"volumeMounts"`
}

// detailed is a sandbox with its tokens and settings.
type detailed struct {
	listed
	AccessToken string    `json:"envdAccessToken"`
	Internet    bool      `json:"allowInternetAccess"`
	Domain      *string   `json:"domain"`
	Network     network   `json:"network"`
	Lifecycle   lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

const (
	running = "running"
	paused  = "paused"
)

// stateOf returns the state of a sandbox in E2B's form; empty for a sandbox that E2B would no longer show.
func stateOf(sb hutch.Sandbox) string {
	switch sb.Status {
	case hutch.Creating, hutch.Running:
		return running
	case hutch.Paused, hutch.Hibernated, hutch.Stopped:
		return paused
	}
	return ""
}

func list(sb hutch.Sandbox) listed {
	l := listed{
		TemplateID: templateOf(sb), SandboxID: sb.ID, ClientID: clientID, StartedAt: sb.CreatedAt.UTC(), EndAt: end(sb).UTC(),
		CPUCount: int(math.Ceil(sb.Limits.CPU)), MemoryMB: sb.Limits.Memory, DiskSizeMB: sb.Limits.Disk,
		Metadata: metadata(sb.Labels), State: stateOf(sb), EnvdVersion: seam.EnvdVersion, Volumes: []volumeMount{},
	}
	for _, m := range sb.Volumes {
		l.Volumes = append(l.Volumes, volumeMount{m.Name, m.Path})
	}
	return l
}

func (s *Server) detail(who *caller.Principal, sb hutch.Sandbox) detailed {
	d := detailed{listed: list(sb), AccessToken: s.accessToken(who.Owner, sb.ID), Domain: s.domain(), Network: networkOf(sb), Lifecycle: lifecycle{"kill", sb.Labels[labelResume] != ""}}
	d.Internet = sb.Network.Mode == hutch.NetworkOpen
	if !sb.KeepAlive {
		d.Lifecycle.OnTimeout = "pause"
	}
	return d
}

// metadata returns the labels of a sandbox without those of this package.
func metadata(labels map[string]string) map[string]string {
	m := map[string]string{}
	for name, value := range labels {
		if !strings.HasPrefix(name, labelPrefix) {
			m[name] = value
		}
	}
	return m
}
