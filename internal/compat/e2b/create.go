package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// The labels that the translation keeps on a sandbox. Names with this prefix cannot be metadata of a client.
const (
	labelPrefix   = "e2b."
	labelTemplate = labelPrefix + "template" // as the client named it
	labelResume   = labelPrefix + "resume"   // "true": a request to a paused sandbox resumes it
	labelClosed   = labelPrefix + "closed"   // "true": its ports need a token
	labelHost     = labelPrefix + "host"     // Host header for its servers, with ${PORT}
	labelHTTPS    = labelPrefix + "https"    // ports whose servers speak HTTPS, separated by spaces
)

// created is the body of a create, of both versions of the API.
type created struct {
	TemplateID string            `json:"templateID"`
	Timeout    *float64          `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	Secure     bool              `json:"secure"` // every sandbox is secured
	Internet   *bool             `json:"allow_internet_access"`
	AutoPause  bool              `json:"autoPause"`
	KeepMemory *bool             `json:"autoPauseMemory"`
	AutoResume *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network      json.RawMessage `json:"network"`
	VolumeMounts []volumeMount   `json:"volumeMounts"`
	MCP          map[string]any  `json:"mcp"` // the client itself starts the gateway, with a command
	IAM          any             `json:"iam"`
}

type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// The timeouts of requests without one, in seconds.
const (
	timeoutV1 = 15
	timeoutV2 = 300
)

func (s *Server) createV1(w http.ResponseWriter, r *http.Request) (int, any, error) {
	return s.create(w, r, timeoutV1)
}

func (s *Server) createV2(w http.ResponseWriter, r *http.Request) (int, any, error) {
	return s.create(w, r, timeoutV2)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, timeout float64) (int, any, error) {
	req := created{Timeout: &timeout}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	who, err := s.holder(r.Context())
	if err != nil {
		return 0, nil, err
	}
	asked, err := req.translate(timeout)
	if err != nil {
		return 0, nil, err
	}
	if err := s.referTo(r.Context(), asked.Network.Headers); err != nil {
		return 0, nil, err
	}
	if err := s.begin(r.Context(), req.TemplateID, &asked); err != nil {
		return 0, nil, err
	}
	asked.ID = s.newID(who.Owner)
	s.setVariables(&asked, req.TemplateID)
	sb, err := s.svc.Create(r.Context(), asked)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.opened(who, sb), nil
}

// holder returns the principal of a call. Only tokens of this server can have sandboxes here: a sandbox's access token
// outlives the request, and must end with the token.
func (s *Server) holder(ctx context.Context) (*caller.Principal, error) {
	who := caller.From(ctx).Principal
	if who == nil || s.opt.Principal(who.Owner) == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "sandboxes of E2B's clients need a token of this server, and this one is another issuer's: create one with hutch token create")
	}
	return who, nil
}

// translate translates everything except the template and the id.
func (c created) translate(timeout float64) (hutch.CreateRequest, error) {
	if c.IAM != nil {
		return hutch.CreateRequest{}, unsupported("iam")
	}
	req := hutch.CreateRequest{Env: maps.Clone(c.EnvVars), Labels: map[string]string{}}
	for name, value := range c.Metadata {
		if err := checkMetadataName(name); err != nil {
			return req, err
		}
		req.Labels[name] = value
	}
	if c.Timeout != nil {
		timeout = *c.Timeout
	}
	if err := c.life(&req, timeout); err != nil {
		return req, err
	}
	for _, m := range c.VolumeMounts {
		req.Volumes = append(req.Volumes, hutch.VolumeMount{Name: m.Name, Path: m.Path})
	}
	var n network
	if err := decode(c.Network, &n); err != nil {
		return req, err
	}
	if n.Public != nil && !*n.Public {
		req.Labels[labelClosed] = "true"
	}
	if err := errors.Join(n.checkHost(), n.checkHTTPS()); err != nil {
		return req, err
	}
	if len(n.HTTPS) > 0 {
		req.Labels[labelHTTPS] = strings.Trim(fmt.Sprint(n.HTTPS), "[]")
	}
	if n.Host != "" {
		req.Labels[labelHost] = n.Host
	}
	var err error
	req.Network, err = n.translate(c.Internet)
	return req, err
}

// checkMetadataName refuses the name of a label that is not the client's.
func checkMetadataName(name string) error {
	if strings.HasPrefix(name, labelPrefix) {
		return hutch.Errorf(hutch.Invalid, "metadata cannot have the name %.100q: names that begin with %s are the server's", name, labelPrefix).Naming(hutch.AboutField, "metadata")
	}
	return nil
}

// life sets how long the sandbox lives, and what happens to it afterwards.
func (c created) life(req *hutch.CreateRequest, timeout float64) error {
	seconds, err := checkTimeout(timeout)
	if err != nil {
		return err
	}
	keeps := c.KeepMemory == nil || *c.KeepMemory
	resumes := c.AutoResume != nil && c.AutoResume.Enabled
	switch {
	case !c.AutoPause && (resumes || !keeps):
		return hutch.Errorf(hutch.Invalid, "autoResume and autoPauseMemory are for sandboxes that pause: set autoPause, too").Naming(hutch.AboutField, "autoPause")
	case resumes && !keeps:
		return hutch.Errorf(hutch.Invalid, "a sandbox without its memory cannot resume by itself: leave out autoResume or autoPauseMemory").Naming(hutch.AboutField, "autoResume")
	case !c.AutoPause:
		req.KeepAlive, req.Timeout = true, seconds
		return nil
	}
	req.SleepAfter, req.OnIdle = seconds, hutch.IdleHibernate
	if !keeps {
		req.OnIdle = hutch.IdleStop
	}
	if resumes {
		req.Labels[labelResume] = "true"
	}
	return nil
}

// checkTimeout returns a timeout in Hutch's form. There 0 would mean no timeout, so 0 becomes a millisecond.
func checkTimeout(seconds float64) (hutch.Seconds, error) {
	if !(seconds >= 0) {
		return 0, hutch.Errorf(hutch.Invalid, "the timeout is %v: give seconds, from 0 up", hutch.Seconds(seconds)).Naming(hutch.AboutField, "timeout")
	}
	return hutch.Seconds(max(seconds, 0.001)), nil
}

// hosts are E2B's templates for which a sandbox has this server's own programs, unless the caller has a template of
// that name.
var hosts = []string{"", "base", "code-interpreter-v1", "code-interpreter"}

// begin sets what a sandbox starts from: a snapshot or template with that id or name, a build of a template, or else
// this server's programs or an image, in this order.
func (s *Server) begin(ctx context.Context, template string, req *hutch.CreateRequest) error {
	name := hutch.TemplateName(strings.TrimSuffix(template, ":"+defaultTag))
	of, tag, _ := strings.Cut(name, ":")
	found, ok, err := s.findSnapshot(ctx, name)
	switch {
	case err != nil:
		return err
	case ok && !found.IsCalled(name): // a build: its names can move to a later one
		req.Template = found.ID
	case ok && found.Template != nil && found.Name != "":
		req.Template = found.Name
	case ok:
		req.Snapshot = found.ID
	case slices.Contains(hosts, name):
	case looksLikeBuild(tag):
		return hutch.Errorf(hutch.NotFound, "there is no build %q of the template %.100q: a later build took its tags, or it was deleted", tag, of)
	case s.isImage(ctx, template):
		req.Image = template
	default:
		return noTemplate(template)
	}
	return nil
}

// isImage reports whether a name means an image: one of the caller's images, or a name in a registry's form. A name
// without a tag or a host is more likely a missing template.
func (s *Server) isImage(ctx context.Context, name string) bool {
	if hutch.CheckImage(name) != nil {
		return false
	}
	if strings.ContainsAny(name, ":/") {
		return true
	}
	if s.opt.Images == nil {
		return false
	}
	_, err := s.opt.Images.Image(ctx, name)
	return err == nil
}

func noTemplate(name string) error {
	return hutch.Errorf(hutch.NotFound, "there is no template %.100q: make one with hutch template create, or name an image such as python:3.13", name)
}

// setVariables sets the variables that E2B's programs expect about their sandbox.
func (s *Server) setVariables(req *hutch.CreateRequest, template string) {
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	req.Env["E2B_SANDBOX"], req.Env["E2B_SANDBOX_ID"], req.Env["E2B_TEMPLATE_ID"] = "true", req.ID, template
	req.Labels[labelTemplate] = template
}

// end returns the time at which the timeout of a running sandbox ends.
func end(sb hutch.Sandbox) time.Time {
	switch {
	case sb.ExpiresAt != nil:
		return *sb.ExpiresAt
	case sb.KeepAlive:
		return time.Now().Add(time.Hour)
	}
	return sb.LastUsedAt.Add(sb.SleepAfter.Duration())
}
