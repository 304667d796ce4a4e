package build

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/moby/patternmatcher/ignorefile"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/ctxlock"
	"hutch/internal/oci"
	"hutch/internal/oci/rootfs"
)

// Sandboxes are the sandboxes in which commands run. The calls are made as the caller of the build.
type Sandboxes interface {
	Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error)
	Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error)
	Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error)
	// HasRoot reports whether programs can be root on a runtime, so that files have the owners that an image says.
	HasRoot(runtime string) bool
	// RunProgram runs a program without a shell, as the user of the sandbox's image.
	RunProgram(ctx context.Context, id string, argv, env []string, dir string, out func(hutch.Output) error) (code int, err error)
	// PackWritten packs the files that were written over the image as a tar archive, UnpackWritten writes such files,
	// and ListWritten writes all names that exist, each with a zero byte at its end. A name that ends with a slash is a
	// folder that was not read.
	PackWritten(ctx context.Context, id string, w io.Writer) error
	UnpackWritten(ctx context.Context, id string, r io.Reader) error
	ListWritten(ctx context.Context, id string, w io.Writer) error
}

// Options are the settings of a builder. Log can be nil.
type Options struct {
	Store     *oci.Store
	Sandboxes Sandboxes
	// Resolve returns the digest of the image of a FROM, which is pulled if it is missing.
	Resolve func(ctx context.Context, name string, pull hutch.PullPolicy) (digest string, err error)
	Log     *slog.Logger
}

// Builder makes images.
type Builder struct {
	opt   Options
	turns ctxlock.Locks // one build of an owner at a time, so that the number of its open files is bounded
}

// New returns a builder.
func New(opt Options) *Builder {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	return &Builder{opt: opt}
}

// defaultTime is the default time limit of a build.
const defaultTime = hutch.Seconds(3600)

// Cutter returns where to cut a line of output after most bytes, or 0 if that depends on the output that follows.
type Cutter = func(line []byte, most int) int

// Build makes an image, as hutch.Images.BuildImage describes it. A long line of output becomes several events; cut
// decides where they begin.
func (b *Builder) Build(ctx context.Context, req hutch.BuildRequest, in io.Reader, progress func(hutch.BuildEvent) error, cut Cutter) (oci.Image, error) {
	if err := req.Check(); err != nil {
		return oci.Image{}, err
	}
	var name oci.Reference
	if req.Name != "" {
		var err error
		if name, err = oci.ParseReference(req.Name); err != nil {
			return oci.Image{}, err
		}
	}
	owner := ownerOf(ctx)
	if err := b.turns.Take(ctx, owner); err != nil {
		return oci.Image{}, err
	}
	defer b.turns.Put(owner)
	req.Timeout = cmp.Or(req.Timeout, defaultTime)
	limit := hutch.Errorf(hutch.Exhausted, "the build took more than %v: give it more time with --timeout", req.Timeout.Duration()).With("limit", "build time")
	ctx, cancel := context.WithTimeoutCause(ctx, req.Timeout.Duration(), limit)
	defer cancel()
	s := b.solver(ctx, owner, req, progress)
	s.cut = cut
	defer s.release()
	img, err := s.build(ctx, in, name)
	if err != nil && errors.Is(context.Cause(ctx), limit) {
		err = limit
	}
	return img, b.opt.Store.Explained(err)
}

func ownerOf(ctx context.Context) string {
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID
}

func (b *Builder) solver(ctx context.Context, owner string, req hutch.BuildRequest, progress func(hutch.BuildEvent) error) *solver {
	if progress == nil {
		progress = func(hutch.BuildEvent) error { return nil }
	}
	return &solver{
		Builder: b, id: hutch.NewID(idPrefix), life: ctx, req: req, out: progress, done: map[string]*state{}, base: map[string]string{},
		files: &files{store: b.opt.Store, owner: owner, roots: map[string]view{}},
	}
}

func (s *solver) release() {
	for _, release := range s.held {
		release()
	}
	s.files.close()
}

func (s *solver) build(ctx context.Context, in io.Reader, name oci.Reference) (oci.Image, error) {
	if err := s.receive(ctx, in); err != nil {
		return oci.Image{}, err
	}
	text, err := s.dockerfile(ctx)
	if err != nil {
		return oci.Image{}, err
	}
	if s.graph, err = parse(ctx, text, s.req, s.resolve, func(w string) { s.out(hutch.BuildEvent{State: hutch.BuildWarning, Text: w}) }); err != nil {
		return oci.Image{}, err
	}
	last := &state{key: "scratch"}
	if s.graph.last != nil {
		if last, err = s.eval(ctx, s.graph.last); err != nil {
			return oci.Image{}, err
		}
	}
	if last.image == "" {
		empty, err := s.store.AddStep(ctx, oci.StepOptions{Owner: s.owner, Key: digestOf("empty"), Fill: s.nothing})
		if err != nil {
			return oci.Image{}, err
		}
		last.image = empty.Digest
	}
	return s.store.Finish(ctx, oci.FinishOptions{Owner: s.owner, From: last.image, Config: s.graph.config, Name: name})
}

// nothing writes a layer without files, for an empty image.
func (s *solver) nothing(w io.Writer) error {
	t, err := s.tree("an empty image")
	if err != nil {
		return err
	}
	return t.write(w)
}

// resolve finds the image of a FROM. It is called for one image at a time.
func (s *solver) resolve(ctx context.Context, ref string) (string, []byte, error) {
	if s.base[ref] == "" {
		digest, err := s.opt.Resolve(ctx, ref, s.req.Pull)
		if err != nil {
			return "", nil, err
		}
		s.held = append(s.held, s.store.Use(s.owner, digest))
		s.base[ref] = digest
	}
	config, err := s.store.ConfigOf(s.owner, s.base[ref])
	return s.base[ref], config, err
}

// receive reads the context, without files that its .dockerignore names.
func (s *solver) receive(ctx context.Context, in io.Reader) error {
	t, err := s.tree("the context of the build")
	if err != nil {
		return err
	}
	s.context = &state{key: "context", trees: []*layer{{tree: t}}}
	if in != nil {
		plain, err := rootfs.Decompress(ctx, in, "the context of the build", s.store.Bounds().Ratio)
		if err != nil {
			return err
		}
		defer plain.Close()
		if err := t.read(ctx, plain, reading{owned: true}); err != nil {
			return err
		}
		// An archive ends before its stream does: padding and checksums follow. Only the end of the stream says that the
		// client is not needed any more.
		if _, err := io.CopyN(io.Discard, until{ctx, in}, maxPadding); err != nil && !errors.Is(err, io.EOF) {
			return t.bad(ctx, err)
		}
	}
	if err := s.ignore(ctx, t); err != nil {
		return err
	}
	s.context.key = "context " + t.digest()
	return nil
}

// maxPadding is how much of a stream is read after the end of its archive, in bytes. tar pads an archive to a multiple of
// 10 KiB, or of its option -b.
const maxPadding = 1 << 20

// ignore drops files that .dockerignore names.
func (s *solver) ignore(ctx context.Context, t *tree) error {
	name := ".dockerignore"
	if own := cmp.Or(s.req.File, defaultFile) + ".dockerignore"; t.nodes[clean(own)] != nil {
		name = clean(own)
	}
	text, ok, err := readText(view{ctx: ctx, trees: []*tree{t}}, name)
	if err != nil || !ok {
		return err
	}
	patterns, err := ignorefile.ReadAll(strings.NewReader(string(text)))
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "%s cannot be read: %v", name, err)
	}
	if s.req.Dockerfile == "" {
		patterns = append(patterns, "!"+clean(cmp.Or(s.req.File, defaultFile)))
	}
	m, err := newPathPatterns(patterns, name)
	if err != nil {
		return err
	}
	var ignored []string
	for _, at := range t.paths() {
		out, err := m.match(ctx, at)
		if err != nil {
			return err
		}
		if out && at != "." {
			ignored = append(ignored, at)
		}
	}
	for _, at := range slices.Backward(ignored) { // a folder after its content
		t.drop(at)
	}
	return nil
}

const defaultFile = "Dockerfile"

// dockerfile returns the text of the Dockerfile.
func (s *solver) dockerfile(ctx context.Context) ([]byte, error) {
	if s.req.Dockerfile != "" {
		return []byte(s.req.Dockerfile), nil
	}
	name := cmp.Or(s.req.File, defaultFile)
	v, err := s.view(ctx, s.context)
	if err != nil {
		return nil, err
	}
	text, ok, err := readText(v, name)
	if err == nil && !ok {
		err = hutch.Errorf(hutch.NotFound, "the context has no file %.300q: name the Dockerfile with -f", name).Naming(hutch.AboutField, "file")
	}
	return text, err
}

// readText reads a small file of a view.
func readText(v view, name string) ([]byte, bool, error) {
	at, err := v.resolve(name, true)
	if err != nil {
		return nil, false, err
	}
	f, ok := v.lookup(at)
	if !ok || !f.mode.IsRegular() {
		return nil, false, nil
	}
	if f.size > hutch.MaxDockerfile {
		return nil, true, hutch.Errorf(hutch.Exhausted, "%s has more than %d KiB: make it smaller", name, hutch.MaxDockerfile>>10).With("limit", "dockerfile")
	}
	r, err := v.open(f)
	if err != nil {
		return nil, true, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return text, true, err
}

// Sweep destroys the sandboxes of builds that an earlier server had.
func (b *Builder) Sweep(ctx context.Context) error {
	ctx = caller.WithoutOwner(ctx)
	list, err := b.opt.Sandboxes.Sandboxes(ctx, hutch.Filter{Brief: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, sb := range list {
		if sb.Labels[Label] == "" || !strings.HasPrefix(sb.ID, idPrefix+"-") {
			continue
		}
		of := caller.WithOwner(ctx, caller.Owner{ID: sb.Owner})
		ended, cancel := context.WithTimeout(of, time.Minute)
		_, err := b.opt.Sandboxes.Destroy(ended, sb.ID, true)
		cancel()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
