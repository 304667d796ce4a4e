package flow

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/durable"
	"hutch/internal/tarfile"
)

const (
	workDir = "/workspace"

	// RunLabel and StepLabel are labels of the sandboxes of a run.
	RunLabel  = "flow.run"
	StepLabel = "flow.step"

	// spareTime is how long after the time limit of its step a sandbox is destroyed, if no runner has destroyed it.
	spareTime = time.Hour
	// serverTimeout is how long a server can be away before a step fails.
	serverTimeout = 5 * time.Minute
	// destroyTime bounds the destruction of a sandbox.
	destroyTime = 30 * time.Second
	// graceTime is the least time that a resumed run has to collect a step that ended while no runner was running.
	graceTime = time.Minute
)

// What a step can put on the disk of the machine that runs the workflow, in bytes: as its printed output, and as its
// output files. A sparse file can be much longer than its size on the sandbox's disk.
var (
	maxLog     int64 = 64 << 20
	maxOutputs int64 = 20 << 30
)

// sandboxID returns the id of the sandbox of an attempt.
func sandboxID(run, step string, attempt int) string {
	return fmt.Sprintf("%s-%s-%d", run, step, attempt)
}

// attempt is one try of a step.
type attempt struct {
	*execution
	step    *Step
	record  Record
	sandbox string
}

// run runs the attempt to its end. Every part can be repeated: an earlier runner can have been killed after any of
// them.
func (a *attempt) run(ctx context.Context) (*int, error) {
	process, err := a.start(ctx)
	if err != nil {
		return nil, err
	}
	if process, err = a.follow(ctx, process.ID); err != nil {
		return nil, err
	}
	if process.ExitCode == nil || *process.ExitCode != 0 {
		return process.ExitCode, failureOf(process)
	}
	return process.ExitCode, patient(ctx, func() error { return a.keep(ctx) })
}

func failureOf(p hutch.Process) error {
	switch {
	case p.ExitCode != nil:
		return fmt.Errorf("exit code %d", *p.ExitCode)
	case p.Signal != 0:
		return fmt.Errorf("ended by signal %d", p.Signal)
	}
	return errors.New("the process did not start, or its sandbox ended")
}

// start creates the sandbox and starts the process, unless both exist.
func (a *attempt) start(ctx context.Context) (process hutch.Process, err error) {
	req := a.step.Sandbox.request()
	req.ID, req.KeepAlive = a.sandbox, true
	req.Labels = map[string]string{RunLabel: a.state.ID, StepLabel: a.step.Name}
	req.Timeout = hutch.InSeconds(time.Duration(a.step.Timeout) + spareTime)
	return process, patient(ctx, func() error {
		if _, err := a.svc.Create(ctx, req); err != nil {
			return err
		}
		list, err := a.svc.Processes(ctx, a.sandbox)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.Name == a.sandbox { // a template can have processes of its own
				a.say(a.step.Name, "still runs, or has ended meanwhile: follow it")
				process = p
				return nil
			}
		}
		if err := a.bring(ctx); err != nil {
			return err
		}
		a.say(a.step.Name, "runs in %s", a.sandbox)
		process, err = a.svc.StartProcess(ctx, a.sandbox, hutch.ProcessRequest{
			Command: a.step.Run, Name: a.sandbox, Dir: workDir, Env: a.step.Env, Secrets: a.step.Secrets,
		})
		return err
	})
}

// bring copies the outputs of earlier steps, and the files next to the workflow file, into the sandbox.
func (a *attempt) bring(ctx context.Context) error {
	for _, need := range a.step.Needs {
		if len(a.flow.step(need).Outputs) == 0 {
			continue
		}
		f, err := os.Open(a.archive(need))
		if err != nil {
			return err
		}
		err = a.svc.Unpack(ctx, a.sandbox, hutch.UnpackRequest{Dir: workDir, Format: hutch.Tar}, f)
		f.Close()
		if err != nil {
			return fmt.Errorf("the outputs of %s: %w", need, err)
		}
	}
	if len(a.step.Files) == 0 {
		return nil
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(pack(w, filepath.Dir(a.state.File), a.step.Files)) }()
	return a.svc.Unpack(ctx, a.sandbox, hutch.UnpackRequest{Dir: workDir, Format: hutch.Tar}, r)
}

// pack writes files and folders below dir as an archive.
func pack(w io.Writer, dir string, names []string) error {
	root, err := os.OpenRoot(dir) // no link can leave it
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewWriter(w)
	for _, name := range names {
		err := fs.WalkDir(root.FS(), filepath.ToSlash(filepath.Clean(name)), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() && !e.Type().IsRegular() {
				return err // links and devices are not copied
			}
			return addFile(archive, root, path)
		})
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return archive.Close()
}

func addFile(archive *tar.Writer, root *os.Root, path string) error {
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := tar.Header{Name: path, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	if info.IsDir() {
		h.Typeflag, h.Name = tar.TypeDir, path+"/"
		return archive.WriteHeader(&h)
	}
	return tarfile.Add(archive, f, h)
}

// follow writes the output of the process to the log of the step until the process has ended. It overwrites the log,
// because it reads the output from the beginning, even if an earlier runner has read it.
func (a *attempt) follow(ctx context.Context, process string) (p hutch.Process, err error) {
	log, err := os.OpenFile(a.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return p, err
	}
	defer log.Close()
	kept := &capped{Writer: log, left: maxLog, end: []byte(fmt.Sprintf("\n[the log ends here, because it has %d MiB; the step continues]\n", maxLog>>20))}
	req := hutch.LogsRequest{SandboxID: a.sandbox, ProcessID: process, Follow: true}
	return p, patient(ctx, func() error {
		_, err := a.svc.Logs(ctx, req, func(o hutch.Output) error {
			req.Cursor = o.Cursor
			if o.Lost > 0 {
				fmt.Fprintf(kept, "[%d bytes are lost]\n", o.Lost)
			}
			if a.watch.Output != nil {
				a.watch.Output(a.step.Name, o.Data)
			}
			_, err := kept.Write(o.Data)
			return err
		})
		if err != nil {
			return err
		}
		if p, err = a.svc.Process(ctx, a.sandbox, process); err == nil && p.Status.Live() {
			return errNotEnded
		}
		return err
	})
}

// capped passes on a number of bytes and a last message, and then drops everything.
type capped struct {
	io.Writer
	left int64
	end  []byte
}

func (c *capped) Write(b []byte) (int, error) {
	if c.left <= 0 {
		return len(b), nil
	}
	piece := b[:min(int64(len(b)), c.left)]
	if c.left -= int64(len(piece)); c.left == 0 {
		piece = append(bytes.Clone(piece), c.end...)
	}
	_, err := c.Writer.Write(piece)
	return len(b), err
}

// strict passes on a number of bytes, and then fails.
type strict struct {
	io.Writer
	left int64
}

func (s *strict) Write(b []byte) (int, error) {
	if s.left -= int64(len(b)); s.left < 0 {
		return 0, fmt.Errorf("the outputs have more than %d MiB", maxOutputs>>20)
	}
	return s.Writer.Write(b)
}

var errNotEnded = hutch.Errorf(hutch.Unavailable, "the output ended before the process")

// keep writes the outputs of the step to an archive, which appears completely or not at all.
func (a *attempt) keep(ctx context.Context) error {
	if len(a.step.Outputs) == 0 {
		return nil
	}
	for _, path := range a.step.Outputs {
		if _, err := a.svc.Stat(ctx, a.sandbox, path); hutch.KindOf(err) == hutch.NotFound {
			return fmt.Errorf("it ended with exit code 0, and there is no output %s in %s", path, workDir)
		} else if err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(a.dir, ".outputs-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = a.svc.Pack(ctx, a.sandbox, hutch.PackRequest{Dir: workDir, Paths: a.step.Outputs, Format: hutch.Tar}, &strict{f, maxOutputs})
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(f.Name(), a.archive(a.step.Name)), durable.Sync(a.dir))
}

func (r *Run) archive(step string) string { return filepath.Join(r.dir, step+".tar") }

func (a *attempt) log() string { return filepath.Join(a.dir, a.step.Name+".log") }

// destroy destroys the sandbox, also when ctx is done. If that fails, the sandbox ends with its lifetime.
func (a *attempt) destroy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTime)
	defer cancel()
	err := patient(ctx, func() error {
		_, err := a.svc.Destroy(ctx, a.sandbox, true)
		return err
	})
	if err != nil && hutch.KindOf(err) != hutch.NotFound {
		a.say(a.step.Name, "the sandbox %s stays for a while: %v", a.sandbox, err)
	}
}

// sweep destroys the sandboxes of attempts that are over, which a killed runner has left. If that fails, the sandboxes
// end with their lifetime.
func (r *Run) sweep(ctx context.Context, svc hutch.Service) {
	live := map[string]bool{}
	for _, step := range r.State().Steps {
		live[sandboxID(r.state.ID, step.Name, step.Attempt)] = step.Status == Running
	}
	destroyAll(ctx, svc, r.state.ID, func(id string) bool { return live[id] })
}

// destroyAll destroys the sandboxes of a run, except spared ones.
func destroyAll(ctx context.Context, svc hutch.Service, run string, spared func(id string) bool) error {
	list, err := svc.Sandboxes(ctx, hutch.Filter{Labels: map[string]string{RunLabel: run}, Brief: true})
	if err != nil {
		return err
	}
	for _, sb := range list {
		if !strings.HasPrefix(sb.ID, run+"-") || spared(sb.ID) {
			continue
		}
		if _, err := svc.Destroy(ctx, sb.ID, true); err != nil && hutch.KindOf(err) != hutch.NotFound {
			return err
		}
	}
	return nil
}

// patient calls f again while it returns Unavailable, for example while the server restarts.
func patient(ctx context.Context, f func() error) error {
	const shortest, longest = 50 * time.Millisecond, 2 * time.Second
	pause, began := shortest, time.Now()
	for {
		called := time.Now()
		err := f()
		if hutch.KindOf(err) != hutch.Unavailable || err == nil {
			return err
		}
		if time.Since(called) > longest { // it worked for a while
			pause, began = shortest, time.Now()
		}
		if time.Since(began) > serverTimeout {
			return err
		}
		if err := delay.Wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longest)
	}
}
