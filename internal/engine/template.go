package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/kernel"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// A template is a snapshot that records its programs (hutch.Template). It is made in a separate sandbox, the builder:
// the template's program becomes ready there, and then the builder's state is saved. A snapshot with memory contains
// the running program, so a sandbox made from it only continues. Without memory, a new sandbox starts the program again
// and Create returns when it is ready.

// buildTime is how long a builder can live, in addition to the time limit of its start command. This matters only if
// the server ends during the call: normally the call itself destroys the builder.
const buildTime = time.Hour

// templates make templates, and start their programs, with the verbs of the engine.
type templates struct{ e *Engine }

// CreateTemplate implements hutch.Snapshots.
func (ts templates) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	if err := ts.checkTemplate(req); err != nil {
		return hutch.Snapshot{}, err
	}
	req.Name = hutch.TemplateName(req.Name)
	if err := ts.e.volumes.check(viewer(ctx).Owner, req.Volumes); err != nil {
		return hutch.Snapshot{}, err
	}
	over, err := ts.freeName(ctx, req)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	from := req.From
	if from == "" {
		if from, err = ts.buildTemplate(ctx, &req); err != nil {
			return hutch.Snapshot{}, err
		}
		defer ts.discardSandbox(ctx, from)
	}
	s, err := ts.e.find(ctx, from)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	if req.Shared && len(s.Record().Secrets) > 0 {
		return hutch.Snapshot{}, hutch.Errorf(hutch.Invalid, "the sandbox asked for secrets, and a template for all owners would show them in its memory: leave shared out, or begin with a sandbox or a snapshot without secrets").Naming(hutch.AboutField, "shared")
	}
	v := draftSnapshot(s, hutch.SnapshotRequest{Name: req.Name, TTL: req.TTL, Shared: req.Shared})
	v.Template = &req.Template
	return ts.e.keepSnapshot(ctx, from, v, !req.FilesOnly, over)
}

// checkTemplate refuses a request that cannot become a template. It is called before anything is made.
func (ts templates) checkTemplate(req hutch.TemplateRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	if req.Ready != nil {
		if _, _, err := ts.e.checkWait(*req.Ready); err != nil {
			return err
		}
	}
	_, err := kernel.Spares(req.Warm)
	return err
}

// freeName returns the id of the snapshot that a new template replaces, or "". It refuses a name that is already in
// use, before the template is made.
func (ts templates) freeName(ctx context.Context, req hutch.TemplateRequest) (over string, err error) {
	v := hutch.Snapshot{Name: req.Name, Owner: viewer(ctx).Owner}
	if old, err := ts.e.snaps.Find(viewer(ctx), req.Name); err == nil && req.Replace && old.Snapshot.Owner == v.Owner {
		over = old.Snapshot.ID
	}
	release, err := ts.e.snaps.Reserve(v, over)
	if err != nil {
		return "", err
	}
	release()
	return over, nil
}

// buildTemplate makes the sandbox from which a template is made, runs the start command, waits until the program is
// ready, and starts the warm interpreters. If something fails, it destroys the sandbox.
func (ts templates) buildTemplate(ctx context.Context, req *hutch.TemplateRequest) (id string, err error) {
	create := req.SandboxRequest()
	create.ID, create.OnIdle, create.Timeout = hutch.NewID("template"), hutch.IdleDestroy, hutch.InSeconds(buildTime)
	if req.Ready != nil {
		create.Timeout += req.Ready.Timeout
	}
	sb, err := ts.e.Create(ctx, create)
	if err != nil {
		return "", err
	}
	if req.Entrypoint {
		req.Start, req.Care, err = ts.e.entrypoint(ctx, sb.Image, req.Care)
	}
	if err == nil {
		err = ts.startReady(ctx, sb.ID, req.Template)
	}
	if err == nil {
		err = ts.warm(ctx, sb.ID, req.Warm)
	}
	if err != nil {
		ts.discardSandbox(ctx, sb.ID)
		return "", err
	}
	return sb.ID, nil
}

// discardSandbox destroys a sandbox that no caller must get.
func (ts templates) discardSandbox(ctx context.Context, id string) {
	if _, err := ts.e.Destroy(context.WithoutCancel(ctx), id, true); err != nil {
		ts.e.log.Error("destroy the sandbox of a template", "sandbox", id, "err", err)
	}
}

// entrypoint returns the program of an image as a command line, with its care. Settings in asked override those of the
// image. The stop signal is always set, so that the program has time to end.
func (c commands) entrypoint(ctx context.Context, name string, asked hutch.Care) (string, hutch.Care, error) {
	root, err := c.life.opt.Image(ctx, name)
	if err != nil {
		return "", asked, err
	}
	asked.StopSignal = cmp.Or(asked.StopSignal, root.Program.Care.StopSignal, askToEnd)
	asked.Health = cmp.Or(asked.Health, root.Program.Care.Health)
	words := root.Program.Command
	if len(words) == 0 {
		return "", asked, hutch.Errorf(hutch.Invalid, "the image %.200s does not say which program it runs: give a command line", name).Naming(hutch.AboutField, "entrypoint")
	}
	command := hutch.CommandLine(words...)
	return command, asked, hutch.ProcessRequest{Command: command}.Check()
}

// startName is the name of the process that a template starts.
const startName = "template"

// startTemplate starts a template's program, in a new sandbox that has only its files. If the program does not become
// ready, the sandbox is destroyed.
func (ts templates) startTemplate(ctx context.Context, id string, t hutch.Template) error {
	err := ts.startReady(ctx, id, t)
	if err != nil {
		ts.discardSandbox(ctx, id)
	}
	return err
}

// startReady starts the process of a template, and waits until it is ready.
func (ts templates) startReady(ctx context.Context, id string, t hutch.Template) error {
	if t.Start == "" {
		return nil
	}
	p, err := ts.e.StartProcess(ctx, id, hutch.ProcessRequest{Command: t.Start, Name: startName, Care: t.Care})
	if err != nil || t.Ready == nil {
		return err
	}
	res, err := ts.e.Wait(ctx, id, p.ID, *t.Ready)
	if err != nil || res.Met {
		return err
	}
	why := "was not ready in time"
	if res.Process.ExitCode != nil {
		why = fmt.Sprintf("ended with exit code %d before it was ready", *res.Process.ExitCode)
	}
	return hutch.Errorf(hutch.Conflict, "the start command of the template %s%s: correct it, or what ready waits for, or give ready a longer timeout", why, ts.lastWords(ctx, id, p.ID)).
		Naming(hutch.AboutField, "start")
}

// lastWords quotes the end of the output of a process, for an error.
func (ts templates) lastWords(ctx context.Context, id, process string) string {
	const most = 1 << 10
	var end []byte
	_, err := ts.e.Logs(ctx, hutch.LogsRequest{SandboxID: id, ProcessID: process}, func(o hutch.Output) error {
		end = append(end, o.Data...)
		end = end[max(0, len(end)-most):]
		return nil
	})
	text := strings.TrimSpace(clean(string(end), most))
	if err != nil || text == "" {
		return " and printed nothing"
	}
	return fmt.Sprintf("; at last it printed %q", text)
}

// warm starts interpreters in a sandbox, which then wait for code.
func (ts templates) warm(ctx context.Context, id string, texts []string) error {
	all, err := kernel.Spares(texts)
	if err != nil {
		return err
	}
	for i, c := range all {
		if err := ts.e.ask(ctx, id, func(agent *wire.Client) error { return agent.Spare(ctx, c) }); err != nil {
			return hutch.Errorf(hutch.KindOf(err), "the interpreter %s cannot wait: %v", texts[i], err).Naming(hutch.AboutField, "warm").Because(err)
		}
	}
	return nil
}

// namesTemplate changes a request whose image is the name of a template: the request then names the template. The name
// of a snapshot that is not a template stays an image.
func (ts templates) namesTemplate(ctx context.Context, req *hutch.CreateRequest) {
	if req.Image == "" || req.Image == image.HostName || req.Template != "" || req.Snapshot != "" {
		return
	}
	if snap := ts.template(ctx, req.Image); snap != nil {
		req.Image, req.Template = "", req.Image
	}
}

// template returns the template with a name, or nil if the caller can use no such template.
func (ts templates) template(ctx context.Context, name string) *snapshots.Snapshot {
	snap, err := ts.e.snaps.Find(viewer(ctx), name)
	if err != nil || snap.Snapshot.Template == nil || !ts.e.snaps.Record(snap).HasName(name) {
		return nil
	}
	return snap
}
