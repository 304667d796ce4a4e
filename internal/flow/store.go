package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/durable"
	"hutch/internal/files"
)

// Status is the state of a run or a step.
type Status string

const (
	Waiting     Status = "waiting"
	Running     Status = "running"
	Done        Status = "done"
	Failed      Status = "failed"
	Skipped     Status = "skipped"     // a step that it needs failed
	Interrupted Status = "interrupted" // the runner has ended, and the run can be resumed
)

// State is the recorded state of a run.
type State struct {
	ID      string    `json:"runId"`
	Name    string    `json:"name"`
	File    string    `json:"file"` // the absolute path of the workflow file
	Started time.Time `json:"startedAt"`
	Ended   time.Time `json:"endedAt,omitzero"`
	Status  Status    `json:"status"`
	Problem string    `json:"problem,omitempty"`
	Steps   []Record  `json:"steps"`
}

// Record is the state of a step.
type Record struct {
	Name     string    `json:"name"`
	Status   Status    `json:"status"`
	Attempt  int       `json:"attempt"`  // number of the newest attempt, from 1; each attempt has its own sandbox
	Failures int       `json:"failures"` // attempts that failed
	Started  time.Time `json:"startedAt,omitzero"`
	Ended    time.Time `json:"endedAt,omitzero"`
	ExitCode *int      `json:"exitCode,omitempty"`
	Problem  string    `json:"problem,omitempty"`
}

// Store is a folder of runs.
type Store struct{ Dir string }

// Run is a run whose lock this process holds. Close releases the lock.
type Run struct {
	flow *Flow
	dir  string
	lock *os.File

	resumed bool

	mu    sync.Mutex
	state State
}

const (
	stateFile = "state.json"
	flowFile  = "flow.yaml"
)

// New records a run of a workflow file.
func (s Store) New(file string) (*Run, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	content, err := readFlow(file)
	if err != nil {
		return nil, err
	}
	f, err := Parse(content)
	if err != nil {
		return nil, err
	}
	state := State{ID: hutch.NewID("flow"), Name: cmp.Or(f.Name, filepath.Base(file)), File: file, Started: time.Now().UTC(), Status: Running}
	for _, step := range f.Steps {
		state.Steps = append(state.Steps, Record{Name: step.Name, Status: Waiting})
	}
	r := &Run{flow: f, dir: filepath.Join(s.Dir, state.ID), state: state}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	if r.lock, _, err = datadir.Lock(r.dir); err != nil {
		return nil, err
	}
	return r, errors.Join(durable.Create(filepath.Join(r.dir, flowFile), content), r.save())
}

// readFlow reads a workflow file, but not much more than is allowed.
func readFlow(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, hutch.Errorf(hutch.Invalid, "%v: give the path of a workflow file", err)
	case !info.Mode().IsRegular():
		return nil, hutch.Errorf(hutch.Invalid, "%s is not a file: give the path of a workflow file", file)
	case info.Size() > maxFile:
		return nil, hutch.Errorf(hutch.Invalid, "%s has %d bytes, over the limit of %d of a workflow: put long scripts into files, and name them under files", file, info.Size(), maxFile)
	}
	return os.ReadFile(file)
}

// Open resumes a run. Steps that failed or were skipped are tried once more.
func (s Store) Open(id string) (*Run, error) {
	if _, err := s.read(id); err != nil {
		return nil, err
	}
	r := &Run{dir: filepath.Join(s.Dir, id), resumed: true}
	var free bool
	var err error
	if r.lock, free, err = datadir.LockPatiently(r.dir); err != nil {
		return nil, err
	}
	if !free {
		return nil, hutch.Errorf(hutch.Conflict, "another process runs %s: wait for it, or end it first", id)
	}
	// From now on, no other process changes the files.
	r.state, err = s.read(id)
	if err == nil {
		r.flow, err = s.flow(id)
	}
	if err != nil {
		return nil, errors.Join(err, r.lock.Close())
	}
	r.state.Status, r.state.Problem, r.state.Ended = Running, "", time.Time{}
	for i := range r.state.Steps {
		if step := &r.state.Steps[i]; step.Status == Failed || step.Status == Skipped {
			*step = Record{Name: step.Name, Status: Waiting, Attempt: step.Attempt}
		}
	}
	return r, r.save()
}

// flow reads the workflow of a run.
func (s Store) flow(id string) (*Flow, error) {
	content, err := os.ReadFile(filepath.Join(s.Dir, id, flowFile))
	if err != nil {
		return nil, err
	}
	return Parse(content)
}

// Close releases the lock.
func (r *Run) Close() error { return r.lock.Close() }

// State returns the state of a run. A run without a process is interrupted.
func (s Store) State(id string) (State, error) {
	state, err := s.read(id)
	if err != nil || state.Status != Running {
		return state, err
	}
	lock, free, err := datadir.Lock(filepath.Join(s.Dir, id))
	if free {
		state.Status = Interrupted
		lock.Close()
	}
	return state, err
}

// read reads the state of a run from disk.
func (s Store) read(id string) (State, error) {
	if err := hutch.CheckID(id); err != nil {
		return State{}, err
	}
	b, err := os.ReadFile(filepath.Join(s.Dir, id, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, hutch.Errorf(hutch.NotFound, "there is no run %q: see `hutch flow ls`", id)
	}
	var state State
	if err == nil {
		err = json.Unmarshal(b, &state)
	}
	if err != nil {
		return State{}, err
	}
	return state, nil
}

// List returns all runs, the oldest first.
func (s Store) List() ([]State, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []State
	for _, e := range entries {
		state, err := s.State(e.Name())
		if hutch.KindOf(err) == hutch.NotFound || hutch.KindOf(err) == hutch.Invalid {
			continue // it was not recorded, or is not a run
		}
		if err != nil {
			return nil, err
		}
		list = append(list, state)
	}
	slices.SortFunc(list, func(a, b State) int { return a.Started.Compare(b.Started) })
	return list, nil
}

// Log returns the path of the output of a step, which need not exist.
func (s Store) Log(id, step string) string { return filepath.Join(s.Dir, id, step+".log") }

// Remove destroys a run: its sandboxes, and its folder.
func (s Store) Remove(ctx context.Context, svc hutch.Service, id string) error {
	state, err := s.read(id)
	if err != nil {
		return err
	}
	lock, free, err := datadir.LockPatiently(filepath.Join(s.Dir, id))
	if err != nil {
		return err
	}
	if !free {
		return hutch.Errorf(hutch.Conflict, "another process runs %s: end it first", id)
	}
	defer lock.Close()
	err = destroyAll(ctx, svc, id, func(string) bool { return false })
	if ended := state.Status != Running; err != nil && !(ended && hutch.KindOf(err) == hutch.Unavailable) { // a run that has ended rarely has sandboxes
		return err
	}
	return os.RemoveAll(filepath.Join(s.Dir, id))
}

// State returns a copy of the state.
func (r *Run) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state
	state.Steps = slices.Clone(state.Steps)
	return state
}

// record changes the record of a step, and saves it.
func (r *Run) record(name string, change func(*Record)) (Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.state.Steps, func(s Record) bool { return s.Name == name })
	change(&r.state.Steps[i])
	return r.state.Steps[i], r.saveLocked()
}

func (r *Run) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saveLocked()
}

func (r *Run) saveLocked() error {
	b, err := json.MarshalIndent(r.state, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(r.dir, stateFile), append(b, '\n'))
}

// Save copies the outputs of each step that is done to a folder of its name below dir.
func (r *Run) Save(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for _, step := range r.State().Steps {
		if step.Status != Done || len(r.flow.step(step.Name).Outputs) == 0 {
			continue
		}
		f, err := os.Open(r.archive(step.Name))
		if err != nil {
			return err
		}
		// The content of the archive comes from a sandbox: package files refuses entries outside of the folder, and
		// leaves out links that point outside.
		target := filepath.Join(dir, step.Name)
		err = errors.Join(os.MkdirAll(target, 0o755), (&files.FS{Dir: target, Most: maxOutputs}).Unpack(ctx, "", hutch.UnpackRequest{Dir: target, Format: hutch.Tar}, f), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}
