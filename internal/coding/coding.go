// Package coding runs coding agents, such as Claude Code, on repositories in sandboxes.
//
// A session with an agent is a sandbox with a label. [hutch.Service] already has the verbs for everything that is done
// with it, so this package is small. A session begins when the sandbox is created and the repository is cloned or
// unpacked in it. A prompt is a background process, so it outlives the connection, and its output can be followed
// again. Several tries are forks of the sandbox. Nothing is kept outside of the sandbox, so a session sleeps, wakes, is
// copied and is destroyed like any other sandbox.
//
// Three rules protect everything outside of the sandbox from the programs inside:
//
//   - The keys of the model are brokered: the server adds them to requests for one host. A secret that a program
//     could read is refused.
//   - Nothing of the repository is run, parsed or followed outside of the sandbox.
//   - What the agent has changed comes out as one text, a diff. [hutch/internal/patch] reads it, and applies it to a
//     folder only as a whole.
//
// The diff is made by a second repository, outside of the agent's repository: it has the files as they were before the
// first prompt. So it does not matter what the agent does with branches, commits, filters and settings of git.
package coding

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
)

const (
	// Label is the label of a sandbox that is a session; its value is the name of the agent.
	Label = "hutch.agent"
	// Folder is where the repository is.
	Folder = "/workspace/repo"

	state  = "/workspace/.hutch-agent" // our own files, next to the repository
	prompt = state + "/prompt"
	base   = state + "/base.git"
	// processName is the name of the process of a prompt.
	processName = "agent"
)

const (
	// defaultTimeout is the time limit of a prompt that sets none.
	defaultTimeout = time.Hour
	// defaultKeep is the lifetime of a session.
	defaultKeep = 7 * 24 * time.Hour
	setUpTime   = 10 * time.Minute // for git's work on a large repository
)

// Service has the verbs that sessions need.
type Service interface {
	hutch.Service
	Secrets(ctx context.Context) ([]hutch.Secret, error)
}

// Session is an agent's sandbox.
type Session struct {
	svc        hutch.Service
	definition Definition
	ID         string
}

// Repository says where the files come from: URL, or Unpack.
type Repository struct {
	hutch.GitCloneRequest
	// Unpack writes files into a folder of the sandbox. It is for callers that have the files themselves.
	Unpack func(ctx context.Context, svc hutch.Service, sandbox, folder string) error
}

// Open makes a session: a sandbox with the repository and the definition's agent. Settings in req override those of the
// definition.
func Open(ctx context.Context, svc Service, d Definition, req hutch.CreateRequest, repo Repository) (_ *Session, err error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if repo.Unpack == nil {
		repo.Dir = Folder
		if err := repo.Check(); err != nil {
			return nil, err
		}
	}
	if req, err = d.request(ctx, svc, req); err != nil {
		return nil, err
	}
	final := req.Network
	if req.Network, err = withHost(final, repo.URL); err != nil {
		return nil, err
	}
	sb, err := svc.Create(ctx, req)
	if err != nil {
		return nil, err
	}
	s := &Session{svc: svc, definition: d, ID: sb.ID}
	defer func() {
		if err != nil {
			s.destroy(ctx)
		}
	}()
	if err := s.fetch(ctx, repo); err != nil {
		return nil, err
	}
	if len(req.Network.Allow) != len(final.Allow) {
		// The host of the repository was allowed only for the clone. From now on it is blocked, because a deceived
		// agent could send data there.
		if _, err := svc.SetNetwork(ctx, s.ID, final); err != nil {
			return nil, err
		}
	}
	return s, s.remember(ctx)
}

// Task is the first prompt of a new session, with the agent, the sandbox and the files that it is for.
type Task struct {
	Agent      Definition
	Sandbox    hutch.CreateRequest // overrides the definition
	Repository Repository
	Prompt     string
	Timeout    time.Duration // default defaultTimeout
}

// Begin opens a session and gives it a prompt. It returns the id of the prompt's process. If it fails, nothing is left.
func Begin(ctx context.Context, svc Service, t Task) (*Session, string, error) {
	s, err := Open(ctx, svc, t.Agent, t.Sandbox, t.Repository)
	if err != nil {
		return nil, "", err
	}
	process, err := s.Start(ctx, t.Prompt, t.Timeout)
	if err != nil {
		s.destroy(ctx)
		return nil, "", err
	}
	return s, process, nil
}

// destroy removes the session, even if its caller has disconnected or has reached a limit.
func (s *Session) destroy(ctx context.Context) {
	ctx, cancel := compat.Cleanup(ctx)
	defer cancel()
	s.svc.Destroy(ctx, s.ID, true)
}

// request completes the request for the sandbox.
func (d Definition) request(ctx context.Context, svc Service, req hutch.CreateRequest) (hutch.CreateRequest, error) {
	req.Env = maps.Clone(req.Env)
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	for name, value := range d.Env {
		if _, set := req.Env[name]; !set {
			req.Env[name] = value
		}
	}
	if err := d.takeKeys(ctx, svc, &req); err != nil {
		return req, err
	}
	if req.Network.Mode != hutch.NetworkNone {
		req.Network.Allow = append(slices.Clone(req.Network.Allow), hutch.Rules(d.Allow...)...)
		req.Network.Mode = cmp.Or(req.Network.Mode, hutch.NetworkAllowList)
	}
	req.Labels = maps.Clone(req.Labels)
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	req.Labels[Label] = d.Name
	req.Timeout = cmp.Or(req.Timeout, hutch.InSeconds(defaultKeep))
	return d.from(ctx, svc, req)
}

// takeKeys adds the secrets of the agent to the request. It refuses a secret that a program in the sandbox could read.
func (d Definition) takeKeys(ctx context.Context, svc Service, req *hutch.CreateRequest) error {
	if len(d.Keys) == 0 {
		return nil
	}
	list, err := svc.Secrets(ctx)
	if err != nil {
		return err
	}
	for _, k := range d.Keys {
		i := slices.IndexFunc(list, func(s hutch.Secret) bool { return s.Name == k.Secret })
		switch {
		case i < 0:
			return hutch.Errorf(hutch.NotFound, "the agent %s needs the secret %s, which is not there: set it with `hutch secret set %[2]s --host %s`, so that the server adds it to requests, and no program can read it", d.Name, k.Secret, k.Host)
		case list[i].Brokered == nil:
			return hutch.Errorf(hutch.Denied, "programs can read the secret %s, and an agent can follow instructions in files of strangers: set the secret again with `hutch secret set %[1]s --host %s`", k.Secret, k.Host)
		}
		req.Secrets = append(req.Secrets, k.use())
		b := list[i].Brokered
		name, port, err := hutch.ParseBrokeredHost(k.Host)
		if err != nil || b.Brokers(name, port) {
			continue
		}
		if _, set := req.Env[k.BaseURL]; set {
			continue
		}
		if k.BaseURL == "" {
			return hutch.Errorf(hutch.Conflict, "the secret %s is for %s, and the agent %s sends it to %s: set the secret for that host", k.Secret, strings.Join(b.Hosts, ", "), d.Name, k.Host)
		}
		req.Env[k.BaseURL] = "https://" + b.Hosts[0]
	}
	return nil
}

// from chooses the template or image that has the agent's program.
func (d Definition) from(ctx context.Context, svc hutch.Service, req hutch.CreateRequest) (hutch.CreateRequest, error) {
	if req.Template != "" || req.Snapshot != "" {
		return req, nil
	}
	named := req.Image != ""
	if req.Image = cmp.Or(req.Image, d.Image, "host"); hutch.CheckTemplateName(req.Image) == nil && req.Image != "host" {
		list, err := svc.Snapshots(ctx)
		if err != nil {
			return req, err
		}
		if slices.ContainsFunc(list, func(s hutch.Snapshot) bool {
			return s.Template != nil && s.HasName(req.Image)
		}) {
			req.Template, req.Image = req.Image, ""
			return req, nil
		}
		if !named {
			return req, hutch.Errorf(hutch.NotFound, "there is no template %s, in which the agent %s is: make it with `hutch template create %[1]s --build FOLDER`, as docs/agents.md shows, or name another image", req.Image, d.Name).Naming(hutch.AboutField, "image")
		}
	}
	if req.InstanceType == "" {
		req.Limits.Memory = cmp.Or(req.Limits.Memory, d.Memory)
		req.Limits.Disk = cmp.Or(req.Limits.Disk, d.Disk)
	}
	return req, nil
}

// Find returns the session of a sandbox. Without a definition it uses the known definition with the name in the
// sandbox's label. If no known definition has this name, because the caller defined the agent, the session can be
// looked at, stopped and copied, but not prompted.
func Find(ctx context.Context, svc hutch.Service, id string, d Definition) (*Session, error) {
	sb, err := svc.Sandbox(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case sb.Labels[Label] == "":
		return nil, hutch.Errorf(hutch.NotFound, "the sandbox %s is not the session of an agent: see `hutch agent ls`", id).Naming(hutch.AboutSandbox, id)
	case d.Name == "":
		if d, err = Named(sb.Labels[Label]); err != nil {
			d = Definition{Name: sb.Labels[Label]}
		}
	case d.Name != sb.Labels[Label]:
		return nil, hutch.Errorf(hutch.Conflict, "the session %s is one of the agent %s, not of %s", id, sb.Labels[Label], d.Name).Naming(hutch.AboutSandbox, id)
	}
	return &Session{svc: svc, definition: d, ID: id}, nil
}

// Fork makes sessions that are copies of this one, or makes none. Each has the lifetime that the original
// was created with.
func (s *Session) Fork(ctx context.Context, count int) ([]*Session, error) {
	return s.fork(ctx, count, func(int) map[string]string { return map[string]string{Label: s.definition.Name} })
}

// fork does the same as Fork, with labels for each copy.
func (s *Session) fork(ctx context.Context, count int, labels func(copy int) map[string]string) ([]*Session, error) {
	sb, err := s.svc.Sandbox(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	keep := hutch.InSeconds(defaultKeep)
	if sb.ExpiresAt != nil {
		keep = hutch.InSeconds(sb.ExpiresAt.Sub(sb.CreatedAt))
	}
	list, err := s.svc.Fork(ctx, s.ID, hutch.ForkRequest{Count: count})
	if err != nil {
		return nil, err
	}
	sessions := make([]*Session, len(list))
	for i, sb := range list {
		sessions[i] = &Session{svc: s.svc, definition: s.definition, ID: sb.ID}
		_, uerr := s.svc.Update(ctx, sb.ID, hutch.UpdateRequest{Labels: labels(i), Timeout: &keep})
		err = cmp.Or(err, uerr)
	}
	if err == nil {
		return sessions, nil
	}
	destroyAll(ctx, sessions)
	return nil, err
}

var noSpace = regexp.MustCompile("No space left on device|Disk quota exceeded")

// maxSaid bounds the end of the standard error that is kept, in bytes.
const maxSaid = 4 << 10

// run runs a script of Hutch in the sandbox, and passes on what it prints.
func (s *Session) run(ctx context.Context, script string, out func(hutch.Output) error, args ...string) error {
	var said []byte // on the standard error
	res, err := s.svc.Exec(ctx, s.ID, hutch.ExecRequest{
		Command: script, Args: args, Timeout: hutch.InSeconds(setUpTime), StreamOnly: true,
		Env: map[string]string{"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
	}, func(o hutch.Output) error {
		if o.Stream == hutch.Stderr {
			said = append(said, o.Data[:min(len(o.Data), maxSaid-len(said))]...)
		} else if out != nil {
			return out(o)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case res.TimedOut:
		return hutch.Errorf(hutch.Timeout, "git did not end within %v: is the repository too large?", setUpTime)
	case res.ExitCode != 0 && noSpace.Match(said):
		return hutch.Errorf(hutch.Exhausted, "the disk of the sandbox is full, so git cannot tell what has changed: remove something with `hutch exec`, or give the next session more with --disk")
	case res.Limit != "":
		return hutch.Errorf(hutch.Exhausted, "git reached the %s limit of the sandbox: give it more with --memory or --disk", res.Limit)
	case res.ExitCode == 127:
		return hutch.Errorf(hutch.Unsupported, "the image has no git, or no bash: use one that has both")
	case res.ExitCode != 0:
		return hutch.Errorf(hutch.Conflict, "git ended with %d: %.500s", res.ExitCode, fmt.Sprintf("%q", said))
	}
	return nil
}
