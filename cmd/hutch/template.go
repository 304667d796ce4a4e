package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newTemplate(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "template", Short: "Make sandboxes that begin with a program running and ready",
		Long: `Make templates, which sandboxes begin as: with an image, an instance type, a program
that runs and is ready, and interpreters whose modules are imported.
` + remoteHelp,
		Example: `  hutch template create web --start 'python3 -m http.server 8000' --ready port:8000
  hutch create --template web one
  hutch template create data --image python:3.12-slim --type standard-1 --warm python=pandas
  hutch template create app --build . --build-allow deb.debian.org --start ./serve --ready port:8000
  hutch template create v2 --from one
  hutch template tag v2 web --replace`,
	}
	c.AddCommand(newTemplateCreate(h, std), newSnapshotList(h, std, true), newTemplateInspect(h, std), newSnapshotTag(h, std, "template"), newSnapshotRemove(h, std, "template"))
	return c
}

// templateFlags are the flags for every setting of a template.
type templateFlags struct {
	placement
	req            hutch.TemplateRequest
	env            []string
	ready          string
	readyTime, ttl time.Duration
	folder         string // folder of the Dockerfile
	build          buildFlags
	care           careFlags
}

func newTemplateCreate(h *home, std streams) *cobra.Command {
	var fl templateFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "create NAME[:TAG]", Short: "Make a template, and print the id of its snapshot",
		Long: `Make a template, and print the id of its snapshot. The server makes a sandbox with the
settings of the flags, runs the start command in it until that is ready, keeps
the state, and destroys the sandbox. With --from it keeps the state of a sandbox that
you have. With --build it first makes the image localhost/NAME of a Dockerfile.
` + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req, err := fl.request(args[0])
			if err == nil && fl.folder != "" {
				req.Image, err = fl.buildImage(ctx, svc, std, req)
				req.Pull = "" // it applies to the images in the Dockerfile's FROM
			}
			if err != nil {
				return err
			}
			first := req.SandboxRequest()
			if err := pullFirst(ctx, svc, &first, std); err != nil {
				return err
			}
			req.Image, req.Pull = first.Image, first.Pull
			snap, err := svc.CreateTemplate(ctx, req)
			return printSnapshot(std, snap, req.FilesOnly, asJSON, err)
		}),
	}
	fl.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (fl *templateFlags) flags(c *cobra.Command) {
	f, r := c.Flags(), &fl.req
	f.StringVar(&r.From, "from", "", "the sandbox whose present state the template has (default: a new one)")
	f.StringVar(&r.Start, "start", "", "command line of a background process that runs in every sandbox")
	f.BoolVar(&r.Entrypoint, "entrypoint", false, "run the image's own program: its ENTRYPOINT and CMD")
	f.StringVar(&fl.ready, "ready", "", "when the start command is ready: `port:N`, http:N/PATH, log:TEXT or healthy (default: once it has started)")
	fl.care.flags(f)
	positiveDurationVar(f, &fl.readyTime, "ready-timeout", "", 0, "how long that may take (default 30s)")
	f.StringArrayVar(&r.Warm, "warm", nil, "an interpreter that waits, with modules imported, e.g. python=pandas,numpy; may be repeated")
	f.IntVar(&r.MaxSandboxes, "max", 0, "most sandboxes of the template at once (default no limit)")
	fl.placement.templateFlags(c)
	f.StringVar(&fl.folder, "build", "", "make the image of the Dockerfile in this folder first, as hutch build does")
	fl.build.dockerfileFlags(f)
	fl.build.network.flags(f, "build-network", "build-allow", "a step of the build")
	f.StringArrayVarP(&fl.env, "env", "e", nil, "environment variable of all programs inside, `NAME=VALUE`, or NAME with the value that it has here; may be repeated")
	f.StringArrayVar(&r.Secrets, "secret", nil, "secret for all programs inside, `NAME` or VARIABLE=NAME; may be repeated")
	f.StringVar(&r.Snapshot, "snapshot", "", "begin as this snapshot, by its id or name")
	f.BoolVar(&r.Replace, "replace", false, "replace the template of that name")
	f.BoolVar(&r.Shared, "shared", false, "let all owners make sandboxes of it (for administrators)")
	f.BoolVar(&r.FilesOnly, "files-only", false, "leave memory out: each sandbox runs the start command again")
	positiveDurationVar(f, &fl.ttl, "ttl", "", 0, "delete it after this time (default: never)")
}

func (fl *templateFlags) request(name string) (hutch.TemplateRequest, error) {
	r, like := fl.req, fl.placement.request("")
	env, err := environment(fl.env)
	if err != nil {
		return r, err
	}
	if r.Care, err = fl.care.care(); err != nil {
		return r, err
	}
	r.Name, r.Env, r.TTL = name, env, hutch.InSeconds(fl.ttl)
	r.Image, r.Pull, r.User, r.Runtime, r.InstanceType, r.Limits = like.Image, like.Pull, like.User, like.Runtime, like.InstanceType, like.Limits
	r.Network, r.Labels, r.Volumes = like.Network, like.Labels, like.Volumes
	if fl.folder == "" && fl.build.given() {
		return r, usageError{errors.New("--file, --target, --no-cache and the flags that begin with --build are about the Dockerfile that --build names: give that, too")}
	}
	if fl.folder != "" && (r.Image != "" || r.From != "" || r.Snapshot != "") {
		return r, usageError{errors.New("--build makes the image: leave out --image, --from and --snapshot")}
	}
	if fl.ready == "" && fl.readyTime != 0 {
		return r, usageError{errors.New("--ready-timeout needs --ready, which says what to wait for")}
	}
	if fl.ready != "" {
		if r.Ready, err = parseReady(fl.ready); err != nil {
			return r, err
		}
		r.Ready.Timeout = hutch.InSeconds(fl.readyTime)
	}
	return r, nil
}

// buildImage builds the image of a template from its Dockerfile. The build's steps have the size of the template's
// sandboxes.
func (fl *templateFlags) buildImage(ctx context.Context, svc *client.Client, std streams, req hutch.TemplateRequest) (string, error) {
	name := "localhost/" + req.Name
	fl.build.req.Name, fl.build.pull, fl.build.runtime, fl.build.limits = name, fl.pull, fl.runtime, fl.limits
	_, err := fl.build.build(ctx, svc, std, fl.folder)
	return name, err
}

// parseReady reads port:8000, http:8000/health, log:TEXT and healthy.
func parseReady(text string) (*hutch.WaitRequest, error) {
	kind, rest, _ := strings.Cut(text, ":")
	wrong := usageError{fmt.Errorf("--ready is %q: write port:8000, http:8000/health, log:TEXT or healthy", text)}
	if text == "healthy" {
		return &hutch.WaitRequest{Healthy: true}, nil
	}
	if kind == "log" && rest != "" {
		return &hutch.WaitRequest{Text: rest}, nil
	}
	number, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		number, path = rest[:i], rest[i:]
	}
	port, err := strconv.Atoi(number)
	switch {
	case err != nil || kind != "port" && kind != "http" || kind == "port" && path != "":
		return nil, wrong
	case kind == "http" && path == "":
		path = "/"
	}
	return &hutch.WaitRequest{Port: port, Path: path}, nil
}

func newTemplateInspect(h *home, std streams) *cobra.Command {
	return alwaysJSON(&cobra.Command{
		Use: "inspect TEMPLATE...", Short: "Print everything about templates, as JSON",
		Long: "Print everything about templates, as a JSON array, by their names or ids.\n" + remoteHelp, Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			list, err := svc.Snapshots(ctx)
			if err != nil {
				return err
			}
			return printRecords(ctx, std, args, func(_ context.Context, name string) (hutch.Snapshot, error) {
				return findTemplate(list, name)
			})
		}),
	})
}

// findTemplate returns the newest snapshot of a name or id.
func findTemplate(list []hutch.Snapshot, name string) (found hutch.Snapshot, err error) {
	var names []string
	for _, s := range list {
		names = append(names, s.Names...)
		if s.IsCalled(name) {
			found = s
		}
	}
	if found.ID == "" {
		err = noTemplate(name, names)
	}
	return found, err
}

func noTemplate(name string, names []string) error {
	return hutch.Errorf(hutch.NotFound, "there is no template %q%s; see `hutch template ls`", name, similarName(name, names))
}
