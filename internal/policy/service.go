package policy

import (
	"context"
	"io"
	"io/fs"
	"net/url"

	"hutch"
	"hutch/internal/auth"
)

// Create implements hutch.Service. It gives the caller a sandbox of its own,
// also when another of that id is shared with it: nobody's grant may take the
// place of what one asked for.
func (p *Policy) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	return do(ctx, p, call{verb: "Create", sandbox: req.ID}, func(ctx context.Context) (hutch.Sandbox, error) {
		if err := p.mayReach(ctx, req.Network); err != nil {
			return hutch.Sandbox{}, err
		}
		return p.next.Create(ctx, req)
	})
}

// Sandbox implements hutch.Service.
func (p *Policy) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	return do(ctx, p, call{verb: "Sandbox", sandbox: id}, func(ctx context.Context) (hutch.Sandbox, error) {
		return p.next.Sandbox(ctx, id)
	})
}

// Sandboxes implements hutch.Service.
func (p *Policy) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	return do(ctx, p, call{verb: "Sandboxes"}, func(ctx context.Context) ([]hutch.Sandbox, error) {
		return p.list(ctx, auth.From(ctx), f)
	})
}

// Destroy implements hutch.Service.
func (p *Policy) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	return do(ctx, p, call{verb: "Destroy", sandbox: id}, func(ctx context.Context) (hutch.Destruction, error) {
		return p.next.Destroy(ctx, id, force)
	})
}

// Exec implements hutch.Service.
func (p *Policy) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	return do(ctx, p, call{verb: "Exec", sandbox: sandbox, target: req.Command, asks: len(req.Secrets) > 0}, func(ctx context.Context) (hutch.ExecResult, error) {
		return p.next.Exec(ctx, sandbox, req, out)
	})
}

// StartProcess implements hutch.Service.
func (p *Policy) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	return do(ctx, p, call{verb: "StartProcess", sandbox: sandbox, target: req.Command, asks: len(req.Secrets) > 0}, func(ctx context.Context) (hutch.Process, error) {
		return p.next.StartProcess(ctx, sandbox, req)
	})
}

// Process implements hutch.Service.
func (p *Policy) Process(ctx context.Context, sandbox, process string) (hutch.Process, error) {
	return do(ctx, p, call{verb: "Process", sandbox: sandbox, target: process}, func(ctx context.Context) (hutch.Process, error) {
		return p.next.Process(ctx, sandbox, process)
	})
}

// Processes implements hutch.Service.
func (p *Policy) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	return do(ctx, p, call{verb: "Processes", sandbox: sandbox}, func(ctx context.Context) ([]hutch.Process, error) {
		return p.next.Processes(ctx, sandbox)
	})
}

// Logs implements hutch.Service.
func (p *Policy) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	return do(ctx, p, call{verb: "Logs", sandbox: req.SandboxID, target: req.ProcessID}, func(ctx context.Context) (int64, error) {
		return p.next.Logs(ctx, req, out)
	})
}

// Signal implements hutch.Service.
func (p *Policy) Signal(ctx context.Context, sandbox, process string, signal int) error {
	return carry(ctx, p, call{verb: "Signal", sandbox: sandbox, target: process}, func(ctx context.Context) error {
		return p.next.Signal(ctx, sandbox, process, signal)
	})
}

// Input implements hutch.ProcessControl.
func (p *Policy) Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error {
	return carry(ctx, p, call{verb: "Input", sandbox: sandbox, target: process}, func(ctx context.Context) error {
		return p.next.Input(ctx, sandbox, process, r, end)
	})
}

// Resize implements hutch.ProcessControl.
func (p *Policy) Resize(ctx context.Context, sandbox, process string, size hutch.Size) error {
	return carry(ctx, p, call{verb: "Resize", sandbox: sandbox, target: process}, func(ctx context.Context) error {
		return p.next.Resize(ctx, sandbox, process, size)
	})
}

// Wait implements hutch.ProcessControl. Waiting for a port makes a request of
// whatever serves there: that is more than to look.
func (p *Policy) Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	c := call{verb: "Wait", sandbox: sandbox, target: process, acts: req.Port != 0}
	return do(ctx, p, c, func(ctx context.Context) (hutch.WaitResult, error) {
		return p.next.Wait(ctx, sandbox, process, req)
	})
}

// CleanProcesses implements hutch.ProcessControl.
func (p *Policy) CleanProcesses(ctx context.Context, sandbox string) (int, error) {
	return do(ctx, p, call{verb: "CleanProcesses", sandbox: sandbox}, func(ctx context.Context) (int, error) {
		return p.next.CleanProcesses(ctx, sandbox)
	})
}

// Languages implements hutch.ProcessControl.
func (p *Policy) Languages(ctx context.Context, sandbox string) ([]hutch.Language, error) {
	return do(ctx, p, call{verb: "Languages", sandbox: sandbox}, func(ctx context.Context) ([]hutch.Language, error) {
		return p.next.Languages(ctx, sandbox)
	})
}

// CreateContext implements hutch.Contexts.
func (p *Policy) CreateContext(ctx context.Context, sandbox string, req hutch.ContextRequest) (hutch.CodeContext, error) {
	return do(ctx, p, call{verb: "CreateContext", sandbox: sandbox, target: req.ID, asks: len(req.Secrets) > 0}, func(ctx context.Context) (hutch.CodeContext, error) {
		return p.next.CreateContext(ctx, sandbox, req)
	})
}

// Contexts implements hutch.Contexts.
func (p *Policy) Contexts(ctx context.Context, sandbox string) ([]hutch.CodeContext, error) {
	return do(ctx, p, call{verb: "Contexts", sandbox: sandbox}, func(ctx context.Context) ([]hutch.CodeContext, error) {
		return p.next.Contexts(ctx, sandbox)
	})
}

// DeleteContext implements hutch.Contexts.
func (p *Policy) DeleteContext(ctx context.Context, sandbox, id string) error {
	return carry(ctx, p, call{verb: "DeleteContext", sandbox: sandbox, target: id}, func(ctx context.Context) error {
		return p.next.DeleteContext(ctx, sandbox, id)
	})
}

// Interrupt implements hutch.Contexts.
func (p *Policy) Interrupt(ctx context.Context, sandbox, id string) error {
	return carry(ctx, p, call{verb: "Interrupt", sandbox: sandbox, target: id}, func(ctx context.Context) error {
		return p.next.Interrupt(ctx, sandbox, id)
	})
}

// RunCode implements hutch.Contexts.
func (p *Policy) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	return do(ctx, p, call{verb: "RunCode", sandbox: sandbox, target: req.Code, asks: len(req.Secrets) > 0}, func(ctx context.Context) (hutch.RunResult, error) {
		return p.next.RunCode(ctx, sandbox, req, out)
	})
}

// GitClone implements hutch.Git.
func (p *Policy) GitClone(ctx context.Context, sandbox string, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return do(ctx, p, call{verb: "GitClone", sandbox: sandbox, target: withoutUser(req.URL)}, func(ctx context.Context) (hutch.GitRepository, error) {
		return p.next.GitClone(ctx, sandbox, req)
	})
}

// withoutUser is a URL without the credentials that may be in it.
func withoutUser(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// GitStatus implements hutch.Git.
func (p *Policy) GitStatus(ctx context.Context, sandbox, dir string) (hutch.GitStatus, error) {
	return do(ctx, p, call{verb: "GitStatus", sandbox: sandbox, target: dir}, func(ctx context.Context) (hutch.GitStatus, error) {
		return p.next.GitStatus(ctx, sandbox, dir)
	})
}

// GitDiff implements hutch.Git.
func (p *Policy) GitDiff(ctx context.Context, sandbox string, req hutch.GitDiffRequest) (string, error) {
	return do(ctx, p, call{verb: "GitDiff", sandbox: sandbox, target: req.Dir}, func(ctx context.Context) (string, error) {
		return p.next.GitDiff(ctx, sandbox, req)
	})
}

// GitCommit implements hutch.Git.
func (p *Policy) GitCommit(ctx context.Context, sandbox string, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	return do(ctx, p, call{verb: "GitCommit", sandbox: sandbox, target: req.Dir}, func(ctx context.Context) (hutch.GitRepository, error) {
		return p.next.GitCommit(ctx, sandbox, req)
	})
}

// ReadFile implements hutch.Files.
func (p *Policy) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	return do(ctx, p, call{verb: "ReadFile", sandbox: sandbox, target: req.Path}, func(ctx context.Context) (hutch.FileInfo, error) {
		return p.next.ReadFile(ctx, sandbox, req, w)
	})
}

// WriteFile implements hutch.Files.
func (p *Policy) WriteFile(ctx context.Context, sandbox string, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	return do(ctx, p, call{verb: "WriteFile", sandbox: sandbox, target: req.Path}, func(ctx context.Context) (hutch.FileInfo, error) {
		return p.next.WriteFile(ctx, sandbox, req, r)
	})
}

// EditFile implements hutch.Files.
func (p *Policy) EditFile(ctx context.Context, sandbox string, req hutch.EditRequest) (hutch.Edit, error) {
	return do(ctx, p, call{verb: "EditFile", sandbox: sandbox, target: req.Path}, func(ctx context.Context) (hutch.Edit, error) {
		return p.next.EditFile(ctx, sandbox, req)
	})
}

// Stat implements hutch.Files.
func (p *Policy) Stat(ctx context.Context, sandbox, path string) (hutch.FileInfo, error) {
	return do(ctx, p, call{verb: "Stat", sandbox: sandbox, target: path}, func(ctx context.Context) (hutch.FileInfo, error) {
		return p.next.Stat(ctx, sandbox, path)
	})
}

// ListFiles implements hutch.Files.
func (p *Policy) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return carry(ctx, p, call{verb: "ListFiles", sandbox: sandbox, target: req.Path}, func(ctx context.Context) error {
		return p.next.ListFiles(ctx, sandbox, req, out)
	})
}

// SearchFiles implements hutch.Files.
func (p *Policy) SearchFiles(ctx context.Context, sandbox string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	return carry(ctx, p, call{verb: "SearchFiles", sandbox: sandbox, target: req.Path}, func(ctx context.Context) error {
		return p.next.SearchFiles(ctx, sandbox, req, out)
	})
}

// Mkdir implements hutch.Files.
func (p *Policy) Mkdir(ctx context.Context, sandbox, path string, parents bool) error {
	return carry(ctx, p, call{verb: "Mkdir", sandbox: sandbox, target: path}, func(ctx context.Context) error {
		return p.next.Mkdir(ctx, sandbox, path, parents)
	})
}

// Move implements hutch.Files.
func (p *Policy) Move(ctx context.Context, sandbox, from, to string, replace bool) error {
	return carry(ctx, p, call{verb: "Move", sandbox: sandbox, target: from + " to " + to}, func(ctx context.Context) error {
		return p.next.Move(ctx, sandbox, from, to, replace)
	})
}

// Copy implements hutch.Files.
func (p *Policy) Copy(ctx context.Context, sandbox, from, to string, replace bool) error {
	return carry(ctx, p, call{verb: "Copy", sandbox: sandbox, target: from + " to " + to}, func(ctx context.Context) error {
		return p.next.Copy(ctx, sandbox, from, to, replace)
	})
}

// Delete implements hutch.Files.
func (p *Policy) Delete(ctx context.Context, sandbox, path string, recursive bool) error {
	return carry(ctx, p, call{verb: "Delete", sandbox: sandbox, target: path}, func(ctx context.Context) error {
		return p.next.Delete(ctx, sandbox, path, recursive)
	})
}

// Chmod implements hutch.Files.
func (p *Policy) Chmod(ctx context.Context, sandbox, path string, mode fs.FileMode) error {
	return carry(ctx, p, call{verb: "Chmod", sandbox: sandbox, target: path}, func(ctx context.Context) error {
		return p.next.Chmod(ctx, sandbox, path, mode)
	})
}

// Watch implements hutch.Files.
func (p *Policy) Watch(ctx context.Context, sandbox string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return carry(ctx, p, call{verb: "Watch", sandbox: sandbox, target: req.Path}, func(ctx context.Context) error {
		return p.next.Watch(ctx, sandbox, req, out)
	})
}

// Pack implements hutch.Files.
func (p *Policy) Pack(ctx context.Context, sandbox string, req hutch.PackRequest, w io.Writer) error {
	return carry(ctx, p, call{verb: "Pack", sandbox: sandbox, target: req.Dir}, func(ctx context.Context) error {
		return p.next.Pack(ctx, sandbox, req, w)
	})
}

// Unpack implements hutch.Files.
func (p *Policy) Unpack(ctx context.Context, sandbox string, req hutch.UnpackRequest, r io.Reader) error {
	return carry(ctx, p, call{verb: "Unpack", sandbox: sandbox, target: req.Dir}, func(ctx context.Context) error {
		return p.next.Unpack(ctx, sandbox, req, r)
	})
}
