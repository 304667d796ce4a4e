package mcp

import (
	"context"
	"fmt"
	"time"

	"hutch"
)

type startProcessArgs struct {
	SandboxID     string              `json:"sandboxId"`
	Command       string              `json:"command" jsonschema:"bash command line"`
	Name          string              `json:"name" jsonschema:"what to call it, for people"`
	RestartPolicy hutch.RestartPolicy `json:"restartPolicy,omitempty" jsonschema:"when to start it again after it ended; default never"`
	Env           map[string]string   `json:"env,omitempty" jsonschema:"environment variables"`
	Secrets       []string            `json:"secrets,omitempty" jsonschema:"as for exec"`
	Dir           string              `json:"cwd,omitempty" jsonschema:"absolute path to run in; default /workspace"`
	Stdin         bool                `json:"openStdin,omitempty" jsonschema:"keep its stdin open, for waitProcess to write to"`
}

// startedProcess is the structured result of startBackgroundProcess.
type startedProcess struct {
	ProcessID string              `json:"processId"`
	SandboxID string              `json:"sandboxId"`
	Status    hutch.ProcessStatus `json:"status" jsonschema:"starting, running or failed"`
	PID       int                 `json:"pid" jsonschema:"inside the sandbox"`
	StartTime time.Time           `json:"startTime"`
}

func (s *server) startBackgroundProcess(ctx context.Context, c *call, in startProcessArgs) (reply, error) {
	c.sandbox = in.SandboxID
	for _, err := range []error{
		need("sandboxId", in.SandboxID, "the sandbox to start it in; exec makes one"),
		need("command", in.Command, "a bash command line"),
		need("name", in.Name, "a short name for the process"),
	} {
		if err != nil {
			return reply{}, err
		}
	}
	p, err := s.svc.StartProcess(ctx, in.SandboxID, hutch.ProcessRequest{
		Command: in.Command, Name: in.Name, Dir: in.Dir, Env: in.Env, Secrets: in.Secrets, RestartPolicy: in.RestartPolicy, Stdin: in.Stdin,
	})
	if err != nil {
		return reply{}, err
	}
	text := fmt.Sprintf("process %s %q is %s in %s, pid %d. waitProcess shows what it prints", p.ID, p.Name, p.Status, p.SandboxID, p.PID)
	return reply{text, startedProcess{p.ID, p.SandboxID, p.Status, p.PID, p.StartTime}}, nil
}
