package mcp

import (
	"context"
	"fmt"
	"strings"

	"hutch"
	"hutch/internal/text"
)

type getSandboxArgs struct {
	SandboxID string       `json:"sandboxId,omitempty" jsonschema:"the one to show; without it all active ones are listed"`
	Filters   hutch.Filter `json:"filters,omitzero" jsonschema:"which ones to list"`
}

// sandboxList is the structured result of a list. It is an object because the older revisions accept only objects.
type sandboxList struct {
	Sandboxes []hutch.Sandbox `json:"sandboxes"`
}

func (s *server) getSandbox(ctx context.Context, c *call, in getSandboxArgs) (reply, error) {
	if in.SandboxID == "" {
		all, err := s.svc.Sandboxes(ctx, in.Filters)
		if err != nil {
			return reply{}, err
		}
		return describeAll(all), nil
	}
	c.sandbox = in.SandboxID
	sb, err := s.svc.Sandbox(ctx, in.SandboxID)
	if err != nil {
		return reply{}, err
	}
	sb = withShortCommands(sb)
	return reply{describe(sb), sb}, nil
}

func describeAll(all []hutch.Sandbox) reply {
	if len(all) == 0 {
		return reply{"no sandboxes: exec without sandboxId makes one", sandboxList{[]hutch.Sandbox{}}}
	}
	var b strings.Builder
	if len(all) == 1 {
		b.WriteString("1 sandbox")
	} else {
		fmt.Fprintf(&b, "%d sandboxes, oldest first", len(all))
	}
	for i := range all {
		all[i] = withShortCommands(all[i])
		if b.Len() < maxShown {
			b.WriteString("\n" + describe(all[i]))
		}
	}
	if b.Len() >= maxShown {
		b.WriteString("\n[… more left out: use filters …]")
	}
	return reply{b.String(), sandboxList{all}}
}

func describe(sb hutch.Sandbox) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", sb.ID, sb.Status)
	if sb.Reason != "" {
		fmt.Fprintf(&b, " (%s)", text.Line(sb.Reason))
	}
	fmt.Fprintf(&b, " · %s · up %.0f s · CPU %.1f %% · memory %.1f MiB · %s on %s",
		sb.Health, float64(sb.Uptime), sb.Resources.CPU, sb.Resources.Memory, sb.Image, sb.Runtime)
	if sb.Status == hutch.Paused {
		b.WriteString(" · any use, such as exec, resumes it")
	}
	if sb.KeepAlive {
		b.WriteString(" · kept alive")
	}
	for _, p := range sb.Processes {
		state := string(p.Status)
		if p.Health != nil {
			state += ", " + describeHealth(*p.Health)
		}
		if p.PID != 0 { // a process that has ended has no pid
			state += fmt.Sprintf(", pid %d", p.PID)
		}
		fmt.Fprintf(&b, "\n  %s %q %s: %s", p.ID, p.Name, state, text.Line(p.Command))
	}
	return b.String()
}

// describeHealth describes the last health check of a process, with the check's output if it failed.
func describeHealth(h hutch.ProcessHealth) string {
	if h.ExitCode == nil || *h.ExitCode == 0 {
		return string(h.Status)
	}
	printed := text.Line(text.Head(h.Output, maxHealthShown, ""))
	return fmt.Sprintf("%s (the last check ended with exit code %d: %q)", h.Status, *h.ExitCode, printed)
}

// maxHealthShown limits how much output of a health check is shown, in bytes.
const maxHealthShown = 200

// maxCommandShown bounds the command of a process in a record, because it can be a megabyte long.
const maxCommandShown = 200

// withShortCommands returns sb with the commands of its processes shortened.
func withShortCommands(sb hutch.Sandbox) hutch.Sandbox {
	processes := make([]hutch.Process, len(sb.Processes))
	for i, p := range sb.Processes {
		if len(p.Command) > maxCommandShown {
			p.Command = readable(wholeRunes([]byte(p.Command)[:maxCommandShown])) + "…"
		}
		processes[i] = p
	}
	sb.Processes, sb.Network.Allow, sb.Network.Block = processes, few(sb.Network.Allow), few(sb.Network.Block)
	return sb
}

type destroySandboxArgs struct {
	SandboxID string `json:"sandboxId"`
	Force     bool   `json:"force,omitempty" jsonschema:"also when background processes run in it"`
}

func (s *server) destroySandbox(ctx context.Context, c *call, in destroySandboxArgs) (reply, error) {
	if err := need("sandboxId", in.SandboxID, "the sandbox to destroy"); err != nil {
		return reply{}, err
	}
	c.sandbox = in.SandboxID
	d, err := s.svc.Destroy(ctx, in.SandboxID, in.Force)
	if err != nil {
		return reply{}, err
	}
	return reply{fmt.Sprintf("%s is destroyed, and all it held is released", d.ID), d}, nil
}
