// Package flow runs workflows: steps in sandboxes, with files passed between them. A workflow is a YAML file; a run of
// it is a folder of small files. It is a thin layer over [hutch.Service], with two ideas:
//
//   - A step is a background process in its own sandbox, so it needs no runner: it continues when the runner or the
//     server dies. The names of sandbox and process are computed from the run, the step and the attempt. A runner that
//     resumes asks the server for these names, and finds existing ones, whether they were recorded or not.
//   - Everything else about a run is on disk before it happens: the number of a step's attempt, and afterwards the
//     archive of its outputs, and then that it is done. Unrecorded work is repeated.
package flow

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"hutch"
	"hutch/internal/yamlfault"
)

// The most that a workflow can have.
const (
	maxFile  = 256 << 10 // bytes
	maxSteps = 200

	maxTitle    = 200 // bytes of the name of a workflow
	maxName     = 32
	maxRetries  = 10
	maxParallel = 50
	maxTime     = 7 * 24 * time.Hour
)

const (
	defaultParallel = 4
	defaultTime     = 24 * time.Hour
)

// Flow is a workflow.
type Flow struct {
	Name     string   `yaml:"name"`
	Timeout  duration `yaml:"timeout"`  // time limit of a run, from the start of its runner; default 24h
	Parallel int      `yaml:"parallel"` // steps at once; default 4
	Sandbox  Sandbox  `yaml:"sandbox"`  // sandbox of steps that name none
	Steps    []Step   `yaml:"steps"`
}

// Step is a command in its own sandbox.
type Step struct {
	Name    string            `yaml:"name"`
	Run     string            `yaml:"run"`     // for bash, in /workspace
	Needs   []string          `yaml:"needs"`   // steps that are done before; their outputs are in /workspace
	Files   []string          `yaml:"files"`   // files and folders next to the workflow file, to copy into /workspace
	Outputs []string          `yaml:"outputs"` // files and folders in /workspace that are kept
	Env     map[string]string `yaml:"env"`
	Secrets []string          `yaml:"secrets"`
	Sandbox *Sandbox          `yaml:"sandbox"`
	Retries int               `yaml:"retries"` // attempts after the first one
	Timeout duration          `yaml:"timeout"` // time limit of an attempt; default: that of the run
}

// Sandbox describes the sandbox of a step.
type Sandbox struct {
	Image    string   `yaml:"image"`
	Template string   `yaml:"template"`
	Runtime  string   `yaml:"runtime"`
	Type     string   `yaml:"type"` // an instance type
	User     string   `yaml:"user"`
	Network  string   `yaml:"network"` // none, allow-list or open
	Allow    []string `yaml:"allow"`
	Memory   int      `yaml:"memory"` // MiB
	CPU      float64  `yaml:"cpu"`
	Disk     int      `yaml:"disk"` // MiB
}

// duration is written as 90s, 10m or 2h30m.
type duration time.Duration

func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil || v < 0 || v > maxTime {
		return hutch.Errorf(hutch.Invalid, "line %d: %.40q is not a time limit: write 90s, 10m or 2h, at most 168h", node.Line, node.Value)
	}
	*d = duration(v)
	return nil
}

// request returns the request for the sandbox.
func (s Sandbox) request() hutch.CreateRequest {
	network := hutch.Network{Mode: hutch.NetworkMode(s.Network), Allow: hutch.Rules(s.Allow...)}
	return hutch.CreateRequest{
		Image: s.Image, Template: s.Template, Runtime: s.Runtime, InstanceType: s.Type, User: s.User, Network: network,
		Limits: hutch.Limits{Memory: s.Memory, CPU: s.CPU, Disk: s.Disk},
	}
}

// Parse reads a workflow file, and checks it. Its errors are of kind Invalid.
func Parse(content []byte) (*Flow, error) {
	if len(content) > maxFile {
		return nil, hutch.Errorf(hutch.Invalid, "the workflow has %d bytes, over the limit of %d: put long scripts into files, and name them under files", len(content), maxFile)
	}
	if err := refuseAliases(content); err != nil {
		return nil, err
	}
	var f Flow
	dec := yaml.NewDecoder(strings.NewReader(string(content)))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, explained(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, hutch.Errorf(hutch.Invalid, "the file has more than one YAML document: a workflow is one")
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	f.fill()
	return &f, nil
}

// refuseAliases refuses a file with aliases, before they are expanded: a few lines of them can stand for gigabytes.
func refuseAliases(content []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return explained(err)
	}
	nodes := []*yaml.Node{&doc}
	for len(nodes) > 0 {
		last := nodes[len(nodes)-1]
		nodes = append(nodes[:len(nodes)-1], last.Content...)
		if last.Kind == yaml.AliasNode {
			return hutch.Errorf(hutch.Invalid, "line %d: the alias *%.40s: a workflow has no aliases; write the value again, or use the part sandbox for all steps", last.Line, last.Value)
		}
	}
	return nil
}

// explained returns an error of the YAML decoder without the names of Go's types.
func explained(err error) error {
	if e, ok := errors.AsType[*hutch.Error](err); ok {
		return e
	}
	text := yamlfault.Words(err, map[string]string{"flow.Flow": "workflow", "flow.Step": "step", "flow.Sandbox": "sandbox"})
	return hutch.Errorf(hutch.Invalid, "the workflow cannot be read: %.500s", text).Because(err)
}

// check refuses a workflow that cannot run.
func (f *Flow) check() error {
	switch {
	case len(f.Steps) == 0:
		return hutch.Errorf(hutch.Invalid, "the workflow has no steps: write a list of steps, each with name and run")
	case len(f.Steps) > maxSteps:
		return hutch.Errorf(hutch.Invalid, "the workflow has %d steps, over the limit of %d", len(f.Steps), maxSteps)
	case len(f.Name) > maxTitle:
		return hutch.Errorf(hutch.Invalid, "the name of the workflow has %d bytes: at most %d are allowed", len(f.Name), maxTitle)
	case f.Parallel < 0 || f.Parallel > maxParallel:
		return hutch.Errorf(hutch.Invalid, "parallel is %d: give 1 to %d steps at once", f.Parallel, maxParallel)
	}
	names := map[string]bool{}
	for _, s := range f.Steps {
		if err := s.check(); err != nil {
			return err
		}
		if names[s.Name] {
			return hutch.Errorf(hutch.Invalid, "two steps are called %q", s.Name)
		}
		names[s.Name] = true
	}
	for _, s := range f.Steps {
		for _, need := range s.Needs {
			if !names[need] {
				return hutch.Errorf(hutch.Invalid, "step %q needs %q, and there is no such step: there are %s", s.Name, need, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
			}
		}
	}
	return f.checkOrder()
}

func (s Step) check() error {
	if err := hutch.CheckID(s.Name); err != nil || len(s.Name) > maxName {
		return hutch.Errorf(hutch.Invalid, "the name of a step is %.80q: use 1 to %d of a-z, 0-9 and hyphen", s.Name, maxName)
	}
	if strings.TrimSpace(s.Run) == "" {
		return hutch.Errorf(hutch.Invalid, "step %q has no command: write one under run", s.Name)
	}
	if s.Retries < 0 || s.Retries > maxRetries {
		return hutch.Errorf(hutch.Invalid, "step %q: retries is %d: give 0 to %d", s.Name, s.Retries, maxRetries)
	}
	for _, path := range append(slices.Clone(s.Files), s.Outputs...) {
		if !filepath.IsLocal(path) {
			return hutch.Errorf(hutch.Invalid, "step %q: %.200q leads out of its folder: files are beside the workflow file or below, and outputs in /workspace", s.Name, path)
		}
	}
	req := hutch.ProcessRequest{Command: s.Run, Env: s.Env, Secrets: s.Secrets}
	if err := req.Check(); err != nil {
		return hutch.Errorf(hutch.Invalid, "step %q: %v", s.Name, err)
	}
	if s.Sandbox == nil {
		return nil
	}
	if err := s.Sandbox.check(); err != nil {
		return hutch.Errorf(hutch.Invalid, "step %q: %v", s.Name, err)
	}
	return nil
}

// check refuses a sandbox that no server has.
func (s Sandbox) check() error {
	req := s.request()
	if _, err := req.Network.Canonical(); err != nil {
		return err
	}
	return req.Check()
}

// checkOrder refuses steps that need each other.
func (f *Flow) checkOrder() error {
	needs := map[string][]string{}
	for _, s := range f.Steps {
		needs[s.Name] = s.Needs
	}
	done := map[string]bool{}
	var visit func(name string, above []string) error
	visit = func(name string, above []string) error {
		if i := slices.Index(above, name); i >= 0 {
			return hutch.Errorf(hutch.Invalid, "steps need each other: %s", strings.Join(append(above[i:], name), " needs "))
		}
		if done[name] {
			return nil
		}
		for _, need := range needs[name] {
			if err := visit(need, append(slices.Clone(above), name)); err != nil {
				return err
			}
		}
		done[name] = true
		return nil
	}
	for _, s := range f.Steps {
		if err := visit(s.Name, nil); err != nil {
			return err
		}
	}
	return f.Sandbox.check()
}

// fill sets missing values.
func (f *Flow) fill() {
	if f.Parallel == 0 {
		f.Parallel = defaultParallel
	}
	if f.Timeout == 0 {
		f.Timeout = duration(defaultTime)
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.Sandbox == nil {
			s.Sandbox = &f.Sandbox
		}
		if s.Timeout == 0 {
			s.Timeout = f.Timeout
		}
	}
}

// step finds a step.
func (f *Flow) step(name string) *Step {
	i := slices.IndexFunc(f.Steps, func(s Step) bool { return s.Name == name })
	return &f.Steps[i]
}
