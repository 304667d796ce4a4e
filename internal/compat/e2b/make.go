package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat/e2b/recipe"
)

// started is the body of a build's start.
type started struct {
	FromImage    string            `json:"fromImage"`
	FromTemplate string            `json:"fromTemplate"`
	Registry     json.RawMessage   `json:"fromImageRegistry"`
	Force        bool              `json:"force"`
	Steps        []json.RawMessage `json:"steps"`
	StartCmd     string            `json:"startCmd"`
	ReadyCmd     string            `json:"readyCmd"`

	login hutch.RegistryLogin
	steps []recipe.Step
}

// baseImage is the image of a template that names none, and of E2B's template base.
const baseImage = "e2bdev/base"

// check reads the nested fields.
func (req *started) check() error {
	var registry struct {
		Type     string `json:"type"`
		Username string `json:"username"`
		Password string `json:"password"`
	}
	var kind struct{ Type string }
	if len(req.Registry) > 0 && json.Unmarshal(req.Registry, &kind) == nil && kind.Type != "registry" && kind.Type != "" {
		return unsupported("fromImageRegistry." + head(kind.Type))
	}
	if err := decode(req.Registry, &registry); err != nil {
		return err
	}
	req.login = hutch.RegistryLogin{Username: registry.Username, Password: registry.Password}
	for _, text := range req.Steps {
		var step recipe.Step
		if err := decode(text, &step); err != nil {
			return err
		}
		req.steps = append(req.steps, step)
	}
	if req.FromImage != "" && req.FromTemplate != "" {
		return hutch.Errorf(hutch.Invalid, "fromImage and fromTemplate are both given: give one").Naming(hutch.AboutField, "fromTemplate")
	}
	if req.FromTemplate == "" {
		req.FromImage = cmp.Or(req.FromImage, baseImage)
		return cmp.Or(hutch.CheckImage(req.FromImage), req.login.Check())
	}
	return nil
}

// make builds the image of a build, and makes a template from it with the tags.
func (s *Server) make(ctx context.Context, b *build, req started) error {
	base, err := s.base(ctx, b, req)
	if err != nil {
		return &recipe.Error{Step: recipe.BaseStep, Err: err}
	}
	files := func(hash string) (io.ReadCloser, error) { return s.uploads.open(b.owner, b.template, hash) }
	made, err := recipe.Write(ctx, base, req.steps, files)
	if err != nil {
		return err
	}
	image, err := s.image(ctx, b, made, files, req.Force || recipe.Forced(req.steps))
	if err != nil {
		return err
	}
	b.say("info", recipe.FinalStep, "making the template")
	first, err := s.svc.CreateTemplate(ctx, hutch.TemplateRequest{
		Name: templateName(b.template, b.tags[0]), Replace: true, Image: image.ID, Pull: hutch.PullNever, Limits: b.limits, Template: s.program(b.id, req.StartCmd, req.ReadyCmd),
	})
	for _, tag := range b.tags[1:] {
		if err == nil {
			err = s.tag(ctx, first, templateName(b.template, tag))
		}
	}
	return err
}

// base returns the origin of a build. It names the image of a template by its digest, because the image may have no
// name.
func (s *Server) base(ctx context.Context, b *build, req started) (recipe.Base, error) {
	if req.FromTemplate == "" {
		return s.baseOf(ctx, b, req)
	}
	found, ok, err := s.findSnapshot(ctx, hutch.TemplateName(strings.TrimSuffix(req.FromTemplate, ":"+defaultTag)))
	switch {
	case err != nil:
		return recipe.Base{}, err
	case !ok && slices.Contains(hosts, req.FromTemplate):
		req.FromImage = baseImage
		return s.baseOf(ctx, b, req)
	case !ok:
		return recipe.Base{}, noTemplate(req.FromTemplate)
	case found.Template == nil || found.Template.Labels[labelBuild] == "":
		return recipe.Base{}, hutch.Errorf(hutch.Unsupported, "%.100q was not built over this API, and what was written in it after its image is not known: name an image in fromImage", req.FromTemplate).Naming(hutch.AboutField, "fromTemplate")
	}
	image, err := s.opt.Images.Image(ctx, found.Image)
	return recipe.Base{Image: "localhost/e2b@" + image.ID, User: image.Config.User}, err
}

func (s *Server) baseOf(ctx context.Context, b *build, req started) (recipe.Base, error) {
	if req.login != (hutch.RegistryLogin{}) {
		b.say("info", recipe.BaseStep, "pulling "+req.FromImage)
		if _, err := s.opt.Images.PullImage(ctx, hutch.PullRequest{Image: req.FromImage, Pull: hutch.PullMissing, RegistryLogin: req.login}, nil); err != nil {
			return recipe.Base{}, err
		}
	}
	return recipe.Base{Image: req.FromImage, Fresh: true}, nil
}

// image builds the image of a recipe.
func (s *Server) image(ctx context.Context, b *build, made recipe.Recipe, files recipe.Files, again bool) (hutch.Image, error) {
	in, out := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		out.CloseWithError(made.Context(ctx, out, files))
	}()
	defer func() { in.Close(); <-packed }()
	at := follower{build: b, lines: made.Lines}
	limits := hutch.Limits{CPU: b.limits.CPU, Memory: b.limits.Memory} // the disk limit is for what sandboxes write later
	image, err := s.opt.Images.BuildImage(ctx, hutch.BuildRequest{Dockerfile: made.Dockerfile, NoCache: again, Limits: limits}, in, at.take)
	if err != nil {
		return image, &recipe.Error{Step: at.line.Step, Err: at.explain(err)}
	}
	return image, nil
}

// follower reports the steps of a build in E2B's form.
type follower struct {
	*build
	lines []recipe.Line // lines that have not begun
	line  recipe.Line   // the current line
}

func (f *follower) take(e hutch.BuildEvent) error {
	switch e.State {
	case hutch.BuildStarted:
		f.begin(e.Name)
	case hutch.BuildCached:
		f.say("info", f.line.Step, "CACHED "+f.line.Shown)
	case hutch.BuildLog:
		for line := range strings.SplitSeq(strings.TrimSuffix(e.Text, "\n"), "\n") {
			f.say("info", f.line.Step, strings.TrimSuffix(line, "\r"))
		}
	case hutch.BuildWarning:
		f.say("debug", f.line.Step, e.Text)
	}
	return nil
}

// begin finds the line of an operation by its kind, which follows the number: "[2/4] RUN …". Operations come in the
// order of the lines, but some lines are not reported.
func (f *follower) begin(name string) {
	_, rest, _ := strings.Cut(name, "] ")
	kind, _, _ := strings.Cut(rest, " ")
	i := slices.IndexFunc(f.lines, func(l recipe.Line) bool { return l.Kind == kind })
	if i < 0 {
		return
	}
	f.line, f.lines = f.lines[i], f.lines[i+1:]
	f.say("info", f.line.Step, f.line.Shown)
}

// explain puts the error of a command into E2B's form, which its clients show.
func (f *follower) explain(err error) error {
	if f.line.Command == "" {
		return err
	}
	e := hutch.AsError(err)
	because := ""
	if code, ok := e.Data["exitCode"]; ok {
		because = fmt.Sprintf("exit status %v", code)
	}
	if about, name := e.About(); about == hutch.AboutField && name == "user" {
		because = fmt.Sprintf("unauthenticated: invalid username: '%s'", f.line.User)
	}
	if because == "" {
		return err
	}
	return hutch.Errorf(e.Kind, "failed to run command '%s': command failed: %s", f.line.Command, because)
}

const readyTime = 5 * time.Minute // longest time for a template's start command

// program returns the program of a template. E2B runs a command repeatedly to check whether the program is ready; Hutch
// waits for a line of output. The start command can end before that, if its exit code is 0.
func (s *Server) program(id, start, ready string) hutch.Template {
	t := hutch.Template{Labels: map[string]string{labelBuild: id}}
	if start == "" && ready == "" {
		return t
	}
	const shell = "/bin/bash -l -c "
	line := "ready " + id
	script, alive := "", ""
	if start != "" {
		alive = "kill -0 $started 2>&- || wait $started || exit; "
		script = shell + hutch.CommandLine(start) + " & started=$!\n"
	}
	if ready != "" {
		script += "until " + shell + hutch.CommandLine(ready) + "; do " + alive + "sleep 0.2; done\n"
	}
	script += "echo " + hutch.CommandLine(line) + "\n"
	if start != "" {
		script += "wait $started\n"
	}
	t.Start = script
	t.Ready = &hutch.WaitRequest{Text: line, Timeout: hutch.InSeconds(min(readyTime, cmp.Or(s.opt.MaxTimeout, readyTime)))}
	return t
}

// tag gives a template another name. For another owner's template, it makes a copy for the caller. The processes of a
// template with memory continue in the copy; for a template without memory, its program is started there.
func (s *Server) tag(ctx context.Context, t hutch.Snapshot, name string) error {
	if isOwn(ctx, t) {
		_, err := s.svc.TagSnapshot(ctx, t.ID, hutch.SnapshotTag{Name: name, Replace: true})
		return err
	}
	req := hutch.TemplateRequest{Name: name, Replace: true, Template: hutch.Template{Labels: maps.Clone(t.Template.Labels), MaxSandboxes: t.Template.MaxSandboxes}}
	if t.Memory {
		req.Snapshot = t.ID
	} else {
		req.Image, req.Pull, req.Limits, req.Template = t.Image, hutch.PullNever, t.Limits, *t.Template
	}
	_, err := s.svc.CreateTemplate(ctx, req)
	return err
}
