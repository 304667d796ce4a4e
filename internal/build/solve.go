package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/moby/buildkit/solver/pb"
	"google.golang.org/protobuf/proto"

	"hutch"
	"hutch/internal/oci"
)

// cacheVersion changes whenever the same operation gives other files.
const cacheVersion = "4"

// solver does the operations of one graph.
type solver struct {
	*Builder
	id   string          // id of the build
	life context.Context // caller's context for work at the end
	*files
	req     hutch.BuildRequest
	graph   *graph
	context *state
	done    map[string]*state // by digest of the operation
	out     func(hutch.BuildEvent) error
	cut     Cutter
	steps   int
	base    map[string]string // digests by the reference of a FROM
	held    []func()          // functions that release images
}

// eval returns the files that an operation gives.
func (s *solver) eval(ctx context.Context, in *pb.Input) (*state, error) {
	v := s.graph.vertices[in.Digest]
	if v == nil || in.Index != 0 {
		return nil, hutch.Errorf(hutch.Unsupported, "the Dockerfile takes the files of a mount, which Hutch cannot build: copy them in a RUN")
	}
	if st := s.done[in.Digest]; st != nil {
		return st, nil
	}
	var inputs []*state
	for _, from := range v.op.Inputs {
		st, err := s.eval(ctx, from)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, st)
	}
	st, err := s.step(ctx, v, inputs)
	if err == nil {
		s.done[in.Digest] = st
	}
	return st, err
}

// step does one operation, and reports it.
func (s *solver) step(ctx context.Context, v *vertex, inputs []*state) (*state, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if strings.HasPrefix(v.op.GetSource().GetIdentifier(), "local://") {
		return s.context, nil
	}
	s.steps++
	r := &run{solver: s, v: v, inputs: inputs, number: s.steps, began: time.Now()}
	if err := r.report(hutch.BuildStarted, v.title()); err != nil {
		return nil, err
	}
	st, err := r.do(ctx)
	switch {
	case err != nil:
		r.report(hutch.BuildFailed, hutch.AsError(s.store.Explained(err)).Message) // other errors would name the server's own files
		return nil, err
	case r.cached:
		err = r.report(hutch.BuildCached, "")
	default:
		err = r.report(hutch.BuildDone, "")
	}
	if st.image != "" {
		s.held = append(s.held, s.store.Use(s.owner, st.image))
	}
	return st, err
}

func (v *vertex) title() string {
	if v.name != "" {
		return v.name
	}
	if src := v.op.GetSource(); src != nil {
		return "FROM " + strings.TrimPrefix(src.Identifier, "docker-image://")
	}
	return "[internal] files"
}

// run is one operation that is being done.
type run struct {
	*solver
	v      *vertex
	inputs []*state
	number int
	began  time.Time
	cached bool
}

func (r *run) report(state hutch.BuildState, text string) error {
	e := hutch.BuildEvent{Step: r.number, State: state}
	switch state {
	case hutch.BuildStarted:
		e.Name = text
	default:
		e.Text, e.Seconds = text, hutch.InSeconds(time.Since(r.began).Round(time.Millisecond))
	}
	return r.out(e)
}

func (r *run) do(ctx context.Context) (*state, error) {
	switch op := r.v.op.Op.(type) {
	case *pb.Op_Source:
		return r.source(ctx, op.Source)
	case *pb.Op_File:
		return r.fileOp(ctx, op.File)
	case *pb.Op_Exec:
		return r.exec(ctx, op.Exec)
	}
	return nil, hutch.Errorf(hutch.Unsupported, "the Dockerfile asks for an operation that Hutch cannot do: %.80T", r.v.op.Op)
}

// source returns the files of an image or of another source.
func (r *run) source(ctx context.Context, op *pb.SourceOp) (*state, error) {
	kind, ref, _ := strings.Cut(op.Identifier, "://")
	switch kind {
	case "docker-image":
		for name, digest := range r.base {
			if ref == name || strings.HasPrefix(ref, name+"@") {
				return &state{key: digest, image: digest, root: digest}, nil
			}
		}
		return nil, fmt.Errorf("the image %s was not looked up", ref)
	case "git":
		return r.fromGit(ctx, op)
	case "http", "https":
		return r.fromURL(ctx, op)
	}
	return nil, hutch.Errorf(hutch.Unsupported, "ADD of %.200q is not built here: put the file into the context before, or get it in a RUN", op.Identifier)
}

// fileOp does file operations. If all inputs are the same as before, so is the result.
func (r *run) fileOp(ctx context.Context, op *pb.FileOp) (*state, error) {
	base := &state{key: "scratch"}
	if in := op.Actions[0].Input; in >= 0 {
		base = r.inputs[in]
	}
	given := r.keyOf(r.inputKeys())
	if st, ok := r.known(ctx, base, given); ok {
		return st, nil
	}
	out, err := r.tree("what " + r.v.title() + " writes")
	if err != nil {
		return nil, err
	}
	if err := r.actions(ctx, op, base, out); err != nil {
		return nil, err
	}
	same := digestOf("files", base.key, out.digest())
	if st, ok := r.known(ctx, base, same); ok {
		return st, r.store.AlsoKey(r.owner, st.image, given)
	}
	st, err := r.save(ctx, base, out, same)
	if err == nil {
		err = r.store.AlsoKey(r.owner, st.image, given)
	}
	return st, err
}

// actions does all actions of an operation, each on the result of the previous one.
func (r *run) actions(ctx context.Context, op *pb.FileOp, base *state, out *tree) error {
	on, err := r.view(ctx, base)
	if err != nil {
		return err
	}
	on = on.over(out)
	w := &fileWork{ctx: ctx, out: out, now: time.Now().UTC().Truncate(time.Second), max: r.store.Bounds().Ratio}
	for i, a := range op.Actions {
		if i > 0 && int(a.Input) != len(r.inputs)+i-1 {
			return hutch.Errorf(hutch.Unsupported, "the Dockerfile asks for work on files in an order that Hutch cannot do")
		}
		if err := r.action(ctx, w, on, a); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) action(ctx context.Context, w *fileWork, on view, a *pb.FileAction) error {
	switch a := a.Action.(type) {
	case *pb.FileAction_Mkdir:
		return w.mkdir(on, a.Mkdir)
	case *pb.FileAction_Mkfile:
		return w.mkfile(on, a.Mkfile)
	case *pb.FileAction_Symlink:
		return w.symlink(on, a.Symlink)
	case *pb.FileAction_Rm:
		return w.remove(on, a.Rm)
	}
	var from view
	if in := a.SecondaryInput; in >= 0 && int(in) < len(r.inputs) {
		var err error
		if from, err = r.view(ctx, r.inputs[in]); err != nil {
			return err
		}
	}
	return w.copy(from, on, a.GetCopy())
}

// known returns the step with a key.
func (r *run) known(ctx context.Context, base *state, key string) (*state, bool) {
	if r.req.NoCache || r.v.again {
		return nil, false
	}
	img, ok := r.store.Step(r.owner, key)
	if !ok {
		return nil, false
	}
	r.cached = true
	return base.over(img.Digest, r.stored(ctx, img.Digest)), true
}

// save keeps the files that an operation wrote as a step.
func (r *run) save(ctx context.Context, base *state, out *tree, key string) (*state, error) {
	img, err := r.store.AddStep(ctx, oci.StepOptions{Owner: r.owner, Base: base.image, Key: key, By: r.v.title(), Fill: out.write})
	if err != nil {
		return nil, err
	}
	return base.over(img.Digest, &layer{tree: out}), nil
}

func (r *run) inputKeys() []string {
	var keys []string
	for _, in := range r.inputs {
		keys = append(keys, in.key)
	}
	return keys
}

// keyOf returns the digest of the operation and of the keys of its inputs.
func (r *run) keyOf(inputs []string) string {
	op := proto.Clone(r.v.op).(*pb.Op)
	op.Inputs = nil
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(op)
	if err != nil {
		return hutch.NewID("none") // an operation without a key is repeated
	}
	return digestOf(append([]string{"operation", string(text)}, inputs...)...)
}

func digestOf(parts ...string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n", cacheVersion)
	for _, p := range parts {
		fmt.Fprintf(sum, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
