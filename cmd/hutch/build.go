package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/client"
	buildcontext "hutch/internal/build/context"
	"hutch/internal/build/export"
	"hutch/internal/text"
)

// buildFlags are the settings of a build, except the folder.
type buildFlags struct {
	placement
	req     hutch.BuildRequest
	file    string
	args    []string
	secrets []string
	timeout time.Duration
	output  string
	quiet   bool
}

func newBuild(h *home, std streams) *cobra.Command {
	var f buildFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "build [flags] FOLDER", Short: "Make an image of a Dockerfile",
		Long: `Make an image of a Dockerfile and of the files in a folder, and print its id. Each RUN
is a command in a sandbox on the server, which reaches what --network and --allow say.
Steps that were done before are not done again while nothing that they use has changed.
What .dockerignore names is not sent. A folder that has the name of a command below is
written with its path: ./logs.
` + remoteHelp,
		Example: `  hutch build -t my-app .
  hutch build -t my-app --allow pypi.org --allow files.pythonhosted.org .
  hutch build -t my-app --target test --build-arg VERSION=2 --secret id=key,src=key.txt .
  hutch run --image my-app
  hutch build ls
  hutch build logs --follow b-k3f9q2mzx7ap`,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			img, err := f.build(ctx, svc, std, args[0])
			if err == nil && f.output != "" {
				err = f.write(ctx, svc, img.ID)
			}
			return printMade(std, img.ID, img, asJSON, err)
		}),
	}
	f.flags(c)
	c.Flags().BoolVar(&f.req.Detach, "detach", false, "let the build continue on the server when this command ends before it")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(newBuildList(h, std), newBuildLogs(h, std), newBuildRemove(h, std))
	return c
}

func newBuildList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List builds, the oldest first",
		Long: "List your builds that run, and the newest that have ended, the oldest first. A restart\nof the server forgets them.\n" + remoteHelp, Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Builds(ctx)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "BUILD\tNAME\tSTATUS\tSTARTED\tENDED\tSTEPS\tIMAGE", func(b hutch.Build) []any {
				return []any{b.ID, dash(b.Name), b.Status, when(&b.StartedAt, ""), when(b.EndedAt, "-"), b.Steps, dash(shortDigest(b.Image))}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newBuildLogs(h *home, std streams) *cobra.Command {
	var follow, asJSON bool
	c := &cobra.Command{
		Use: "logs BUILD", Short: "Show the output of a build",
		Long: "Show the output of a build: of long output, the beginning and the end.\n" + remoteHelp, Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			show := newSteps(std.out, false).show
			if asJSON {
				enc := json.NewEncoder(std.out)
				show = func(e hutch.BuildEvent) error { return enc.Encode(e) }
			}
			b, err := svc.BuildLogs(ctx, args[0], follow, show)
			if err == nil && b.Status == hutch.BuildBroken {
				fmt.Fprintln(std.err, "the build failed:", text.Line(b.Error))
			}
			return err
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show new output until the build has ended")
	c.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each event")
	return c
}

func newBuildRemove(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm BUILD...", Aliases: []string{"cancel"}, Short: "End builds, or remove their records",
		Long: `End builds that run, and keep their records; remove the records of builds that have
ended.
` + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{noun: "build", remove: (*client.Client).DeleteBuild}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (f *buildFlags) flags(c *cobra.Command) {
	s := c.Flags()
	s.StringVarP(&f.req.Name, "tag", "t", "", "name of the image, such as my-app or my-app:2")
	f.dockerfileFlags(s)
	s.StringArrayVar(&f.secrets, "secret", nil, "secret for RUN --mount=type=secret, `id=ID,src=FILE` or id=ID,env=VARIABLE; may be repeated")
	s.StringVar(&f.pull, "pull", "", "when to ask the registries of the images in FROM: missing, always or never (default missing)")
	s.StringToStringVar(&f.labels, "label", nil, "label of the image, `NAME=VALUE`; may be repeated")
	s.StringVarP(&f.output, "output", "o", "", "write the image to this file, too, as an archive that docker load reads; or its files, `type=local,dest=FOLDER` or type=tar,dest=FILE")
	s.StringVar(&f.runtime, "runtime", "", "runtime of the steps (default: the server's)")
	f.network.flags(s, "network", "allow", "a step")
	coresVar(s, &f.limits.CPU, "cpu", "cores of a step (default 1)")
	mebibytesVar(s, &f.limits.Memory, "memory", "memory of a step in MiB, or with a unit, such as 2g (default 512)")
	mebibytesVar(s, &f.limits.Disk, "disk", "size of the files that a step can write, in MiB or with a unit (default 1024)")
	positiveDurationVar(s, &f.timeout, "timeout", "", 0, "end the build after this time (default 1h)")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "print the id only")
}

// target parses --output: a file, or the form of docker build.
func (f *buildFlags) target() (kind, dest string, err error) {
	if !strings.Contains(f.output, "type=") && !strings.Contains(f.output, "dest=") {
		return "docker", f.output, nil
	}
	for part := range strings.SplitSeq(f.output, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "type":
			kind = value
		case "dest":
			dest = value
		default:
			return "", "", usageError{fmt.Errorf("--output does not know %q: write type=local,dest=FOLDER, or type=tar, oci or docker with dest=FILE", part)}
		}
	}
	if dest == "" || !slices.Contains([]string{"local", "tar", "oci", "docker"}, kind) {
		return "", "", usageError{fmt.Errorf("--output is %q: write type=local,dest=FOLDER, or type=tar, oci or docker with dest=FILE", f.output)}
	}
	return kind, dest, nil
}

// write writes the image, or its files, to the target of --output. An archive has both formats: Docker's and an OCI
// layout.
func (f *buildFlags) write(ctx context.Context, svc *client.Client, id string) error {
	kind, dest, err := f.target()
	if err != nil {
		return err
	}
	save := func(w io.Writer) error { return svc.SaveImage(ctx, id, w) }
	if kind == "oci" || kind == "docker" {
		return intoFile(dest, save)
	}
	dir, err := os.MkdirTemp("", "hutch-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "image.tar")
	if err := intoFile(archive, save); err != nil {
		return err
	}
	if kind == "local" {
		return export.Folder(archive, dest)
	}
	return intoFile(dest, func(w io.Writer) error { return export.Tar(archive, w) })
}

// dockerfileFlags describe the build.
func (f *buildFlags) dockerfileFlags(s *pflag.FlagSet) {
	s.StringVarP(&f.file, "file", "f", "", "the Dockerfile (default: Dockerfile in the folder; - is the standard input)")
	s.StringArrayVar(&f.args, "build-arg", nil, "value of an ARG, `NAME=VALUE`, or NAME with the value that it has here; may be repeated")
	s.StringVar(&f.req.Target, "target", "", "the stage to build (default: the last)")
	s.BoolVar(&f.req.NoCache, "no-cache", false, "do all steps again")
}

// given reports whether a flag is set that is only for builds.
func (f *buildFlags) given() bool {
	return f.file != "" || len(f.args) > 0 || f.req.Target != "" || f.req.NoCache || !f.network.network().IsZero()
}

// build sends the folder, and shows the steps.
func (f *buildFlags) build(ctx context.Context, svc *client.Client, std streams, dir string) (hutch.Image, error) {
	if err := f.request(std, dir); err != nil {
		return hutch.Image{}, err
	}
	ignore := filepath.Join(dir, ".dockerignore")
	if own := f.file + ".dockerignore"; f.file != "" && exists(own) {
		ignore = own
	}
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		w.CloseWithError(buildcontext.Pack(w, dir, ignore))
	}()
	defer func() { r.Close(); <-packed }()
	shown := newSteps(std.err, f.quiet)
	shown.detach = f.req.Detach
	img, err := svc.BuildImage(ctx, f.req, r, shown.show)
	return img, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// request reads the files that the flags name.
func (f *buildFlags) request(std streams, dir string) (err error) {
	if _, _, err := f.target(); err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return hutch.Errorf(hutch.NotFound, "%s is not a folder: name the folder whose files the Dockerfile copies", dir)
	}
	f.req.Pull, f.req.Labels, f.req.Runtime, f.req.Limits, f.req.Network = hutch.PullPolicy(f.pull), f.labels, f.runtime, f.limits, f.network.network()
	f.req.Timeout = hutch.InSeconds(f.timeout)
	if f.req.Args, err = environment(f.args); err != nil {
		return err
	}
	if f.req.Secrets, err = buildSecrets(f.secrets); err != nil {
		return err
	}
	var text []byte
	switch f.file {
	case "-":
		text, err = io.ReadAll(io.LimitReader(std.in, hutch.MaxDockerfile+1))
	case "":
		text, err = os.ReadFile(filepath.Join(dir, "Dockerfile"))
	default:
		text, err = os.ReadFile(f.file)
	}
	if err != nil {
		return hutch.Errorf(hutch.NotFound, "%v: name the Dockerfile with --file", err)
	}
	if f.req.Dockerfile = string(text); f.req.Dockerfile == "" {
		return hutch.Errorf(hutch.Invalid, "the Dockerfile is empty: begin it with FROM")
	}
	return nil
}

// buildSecrets parses secrets in the form of docker build.
func buildSecrets(list []string) (map[string]string, error) {
	all := map[string]string{}
	for _, given := range list {
		fields := map[string]string{}
		for part := range strings.SplitSeq(given, ",") {
			name, value, _ := strings.Cut(part, "=")
			fields[name] = value
		}
		id := fields["id"]
		file, variable := fields["src"]+fields["source"], fields["env"]
		switch {
		case id == "" || fields["type"] == "ssh":
			return nil, usageError{fmt.Errorf("--secret %q names no secret: write id=ID,src=FILE or id=ID,env=VARIABLE", given)}
		case file == "" && variable == "":
			variable = id
			if _, ok := os.LookupEnv(id); !ok {
				file = id
			}
		}
		value := os.Getenv(variable)
		if file != "" {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, hutch.Errorf(hutch.NotFound, "the secret %s: %v: name a file with src=, or a variable with env=", id, err)
			}
			value = string(b)
		} else if _, ok := os.LookupEnv(variable); !ok {
			return nil, hutch.Errorf(hutch.NotFound, "the secret %s: the environment has no variable %s: set it, or name a file with src=", id, variable)
		}
		all[id] = value
	}
	return all, nil
}

// steps shows the steps of a build, as docker build does in plain text.
type steps struct {
	w      *bufio.Writer
	quiet  bool
	detach bool // the id of the build is shown
	last   int
}

func newSteps(w io.Writer, quiet bool) *steps { return &steps{w: bufio.NewWriter(w), quiet: quiet} }

func (s *steps) show(e hutch.BuildEvent) error {
	if s.quiet || e.State == hutch.BuildQueued && !s.detach {
		return nil
	}
	if e.Step != s.last && s.last != 0 {
		fmt.Fprintln(s.w)
	}
	s.last = e.Step
	switch e.State {
	case hutch.BuildQueued:
		fmt.Fprintf(s.w, "build %s\n", e.Build)
	case hutch.BuildStarted:
		fmt.Fprintf(s.w, "#%d %s\n", e.Step, text.Line(e.Name))
	case hutch.BuildCached:
		fmt.Fprintf(s.w, "#%d CACHED\n", e.Step)
	case hutch.BuildDone:
		fmt.Fprintf(s.w, "#%d DONE %.1fs\n", e.Step, float64(e.Seconds))
	case hutch.BuildFailed:
		fmt.Fprintf(s.w, "#%d ERROR: %s\n", e.Step, text.Line(e.Text))
	case hutch.BuildWarning:
		fmt.Fprintf(s.w, "warning: %s\n", text.Line(e.Text))
	default:
		fmt.Fprintf(s.w, "#%d %.3f %s\n", e.Step, float64(e.Seconds), text.Line(e.Text))
	}
	return s.w.Flush()
}
