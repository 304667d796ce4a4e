package wrap

import (
	"context"
	"io"

	"hutch"
	"hutch/internal/verb"
)

// Create implements hutch.Service.
func (s *Service) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Create", Sandbox: req.ID, Request: req}, func(ctx context.Context) (hutch.Sandbox, error) {
		return next(ctx, s).Create(ctx, req)
	})
}

// Sandbox implements hutch.Service.
func (s *Service) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Sandbox", Sandbox: id}, func(ctx context.Context) (hutch.Sandbox, error) {
		return next(ctx, s).Sandbox(ctx, id)
	})
}

// Sandboxes implements hutch.Service.
func (s *Service) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Sandboxes", Request: f}, func(ctx context.Context) ([]hutch.Sandbox, error) {
		return next(ctx, s).Sandboxes(ctx, f)
	})
}

// InstanceTypes implements hutch.Service.
func (s *Service) InstanceTypes(ctx context.Context) ([]hutch.InstanceType, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "InstanceTypes"}, func(ctx context.Context) ([]hutch.InstanceType, error) {
		return next(ctx, s).InstanceTypes(ctx)
	})
}

// Update implements hutch.Service.
func (s *Service) Update(ctx context.Context, id string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Update", Sandbox: id, Request: req}, func(ctx context.Context) (hutch.Sandbox, error) {
		return next(ctx, s).Update(ctx, id, req)
	})
}

// Destroy implements hutch.Service.
func (s *Service) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Destroy", Sandbox: id}, func(ctx context.Context) (hutch.Destruction, error) {
		return next(ctx, s).Destroy(ctx, id, force)
	})
}

// Exec implements hutch.Service.
func (s *Service) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Exec", Sandbox: sandbox, Target: req.Command, Secrets: len(req.Secrets) > 0, Request: req}, func(ctx context.Context) (hutch.ExecResult, error) {
		return next(ctx, s).Exec(ctx, sandbox, req, out)
	})
}

// ResumeExec implements hutch.Service.
func (s *Service) ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "ResumeExec", Sandbox: sandbox, Target: exec}, func(ctx context.Context) (hutch.ExecResult, error) {
		return next(ctx, s).ResumeExec(ctx, sandbox, exec, cursor, out)
	})
}

// CancelExec implements hutch.Service.
func (s *Service) CancelExec(ctx context.Context, sandbox, exec string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "CancelExec", Sandbox: sandbox, Target: exec}, func(ctx context.Context) error {
		return next(ctx, s).CancelExec(ctx, sandbox, exec)
	})
}

// StartProcess implements hutch.Service.
func (s *Service) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "StartProcess", Sandbox: sandbox, Target: req.Command, Secrets: len(req.Secrets) > 0, Request: req}, func(ctx context.Context) (hutch.Process, error) {
		return next(ctx, s).StartProcess(ctx, sandbox, req)
	})
}

// Process implements hutch.Service.
func (s *Service) Process(ctx context.Context, sandbox, process string) (hutch.Process, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Process", Sandbox: sandbox, Target: process}, func(ctx context.Context) (hutch.Process, error) {
		return next(ctx, s).Process(ctx, sandbox, process)
	})
}

// Processes implements hutch.Service.
func (s *Service) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Processes", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.Process, error) {
		return next(ctx, s).Processes(ctx, sandbox)
	})
}

// Logs implements hutch.Service.
func (s *Service) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Logs", Sandbox: req.SandboxID, Target: req.ProcessID, Request: req}, func(ctx context.Context) (int64, error) {
		return next(ctx, s).Logs(ctx, req, out)
	})
}

// Signal implements hutch.Service.
func (s *Service) Signal(ctx context.Context, sandbox, process string, signal int) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Signal", Sandbox: sandbox, Target: process}, func(ctx context.Context) error {
		return next(ctx, s).Signal(ctx, sandbox, process, signal)
	})
}

// Input implements hutch.ProcessControl.
func (s *Service) Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Input", Sandbox: sandbox, Target: process}, func(ctx context.Context) error {
		return next(ctx, s).Input(ctx, sandbox, process, r, end)
	})
}

// Resize implements hutch.ProcessControl.
func (s *Service) Resize(ctx context.Context, sandbox, process string, size hutch.Size) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Resize", Sandbox: sandbox, Target: process}, func(ctx context.Context) error {
		return next(ctx, s).Resize(ctx, sandbox, process, size)
	})
}

// Wait implements hutch.ProcessControl.
func (s *Service) Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Wait", Sandbox: sandbox, Target: process, Runs: req.Port != 0, Request: req}, func(ctx context.Context) (hutch.WaitResult, error) {
		return next(ctx, s).Wait(ctx, sandbox, process, req)
	})
}

// CleanProcesses implements hutch.ProcessControl.
func (s *Service) CleanProcesses(ctx context.Context, sandbox string) (int, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CleanProcesses", Sandbox: sandbox}, func(ctx context.Context) (int, error) {
		return next(ctx, s).CleanProcesses(ctx, sandbox)
	})
}

// Languages implements hutch.ProcessControl.
func (s *Service) Languages(ctx context.Context, sandbox string) ([]hutch.Language, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Languages", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.Language, error) {
		return next(ctx, s).Languages(ctx, sandbox)
	})
}

// CreateContext implements hutch.Contexts.
func (s *Service) CreateContext(ctx context.Context, sandbox string, req hutch.ContextRequest) (hutch.CodeContext, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "CreateContext", Sandbox: sandbox, Target: req.ID, Secrets: len(req.Secrets) > 0, Request: req}, func(ctx context.Context) (hutch.CodeContext, error) {
		return next(ctx, s).CreateContext(ctx, sandbox, req)
	})
}

// Contexts implements hutch.Contexts.
func (s *Service) Contexts(ctx context.Context, sandbox string) ([]hutch.CodeContext, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "Contexts", Sandbox: sandbox}, func(ctx context.Context) ([]hutch.CodeContext, error) {
		return next(ctx, s).Contexts(ctx, sandbox)
	})
}

// DeleteContext implements hutch.Contexts.
func (s *Service) DeleteContext(ctx context.Context, sandbox, id string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "DeleteContext", Sandbox: sandbox, Target: id}, func(ctx context.Context) error {
		return next(ctx, s).DeleteContext(ctx, sandbox, id)
	})
}

// Interrupt implements hutch.Contexts.
func (s *Service) Interrupt(ctx context.Context, sandbox, id string) error {
	return AroundError(ctx, s.Hook, verb.Call{Verb: "Interrupt", Sandbox: sandbox, Target: id}, func(ctx context.Context) error {
		return next(ctx, s).Interrupt(ctx, sandbox, id)
	})
}

// RunCode implements hutch.Contexts.
func (s *Service) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "RunCode", Sandbox: sandbox, Target: req.Code, Secrets: len(req.Secrets) > 0, Request: req}, func(ctx context.Context) (hutch.RunResult, error) {
		return next(ctx, s).RunCode(ctx, sandbox, req, out)
	})
}

// GitClone implements hutch.Git.
func (s *Service) GitClone(ctx context.Context, sandbox string, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "GitClone", Sandbox: sandbox, Target: urlTarget(req.URL), Request: req}, func(ctx context.Context) (hutch.GitRepository, error) {
		return next(ctx, s).GitClone(ctx, sandbox, req)
	})
}

// GitStatus implements hutch.Git.
func (s *Service) GitStatus(ctx context.Context, sandbox, dir string) (hutch.GitStatus, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "GitStatus", Sandbox: sandbox, Target: dir}, func(ctx context.Context) (hutch.GitStatus, error) {
		return next(ctx, s).GitStatus(ctx, sandbox, dir)
	})
}

// GitDiff implements hutch.Git.
func (s *Service) GitDiff(ctx context.Context, sandbox string, req hutch.GitDiffRequest) (string, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "GitDiff", Sandbox: sandbox, Target: req.Dir, Request: req}, func(ctx context.Context) (string, error) {
		return next(ctx, s).GitDiff(ctx, sandbox, req)
	})
}

// GitCommit implements hutch.Git.
func (s *Service) GitCommit(ctx context.Context, sandbox string, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	return Around(ctx, s.Hook, verb.Call{Verb: "GitCommit", Sandbox: sandbox, Target: req.Dir, Request: req}, func(ctx context.Context) (hutch.GitRepository, error) {
		return next(ctx, s).GitCommit(ctx, sandbox, req)
	})
}
