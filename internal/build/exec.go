package build

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/moby/buildkit/solver/pb"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/oci"
	"hutch/internal/pipe"
)

// Label marks the sandboxes of builds, with the id of the build. When a server starts, it destroys the remaining
// sandboxes of earlier builds.
const Label = "hutch.build"

// idPrefix begins the ids of these sandboxes.
const idPrefix = "build"

// exec runs a command in a sandbox, and keeps the files that it wrote.
func (r *run) exec(ctx context.Context, op *pb.ExecOp) (*state, error) {
	m, err := r.mounts(op)
	if err != nil {
		return nil, err
	}
	key, err := r.execKey(ctx, m)
	if err != nil {
		return nil, err
	}
	if st, ok := r.known(ctx, m.root, key); ok {
		return st, nil
	}
	base, err := r.store.AddStep(ctx, oci.StepOptions{
		Owner: r.owner, Base: m.root.image, User: op.Meta.User, WorkingDir: op.Meta.Cwd, Key: digestOf("sandbox", m.root.key, op.Meta.User, op.Meta.Cwd),
	})
	if err != nil {
		return nil, err
	}
	defer r.store.Use(r.owner, base.Digest)()
	before, err := r.rootOf(ctx, base.Digest)
	if err != nil {
		return nil, err
	}
	box, err := r.sandbox(ctx, op, base.Digest)
	if err != nil {
		return nil, err
	}
	defer box.destroy()
	out, err := box.work(ctx, op, m, before)
	if err != nil {
		return nil, err
	}
	st, err := r.save(ctx, m.root, out, key)
	if err == nil {
		st.root, st.trees = base.Digest, []*layer{{tree: out}}
	}
	return st, err
}

// execKey returns the key of the command and of everything that it can see. Secrets and caches are not in it.
func (r *run) execKey(ctx context.Context, m *mounts) (string, error) {
	keys := []string{m.root.key}
	for _, b := range m.binds {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		k := b.from.key
		if b.from.image == "" {
			v, err := r.view(ctx, b.from)
			if err != nil {
				return "", err
			}
			if k, err = contentKey(v, b.selector); err != nil {
				return "", err
			}
		}
		keys = append(keys, k)
	}
	return r.keyOf(keys), nil
}

// contentKey returns the digest of the files at a path of a context.
func contentKey(v view, selector string) (string, error) {
	at, err := v.resolve(selector, true)
	if err != nil {
		return "", err
	}
	parts := []string{"content"}
	for _, t := range v.trees {
		var names []string
		for _, name := range t.paths() {
			if at == "." || name == at || strings.HasPrefix(name, at+"/") {
				names = append(names, name)
			}
		}
		parts = append(parts, t.digestOf(names))
	}
	return digestOf(parts...), nil
}

// box is the sandbox of one command.
type box struct {
	*run
	id, runtime string
}

// mostTime is how much longer than its build a sandbox can live, if it is not destroyed.
const mostTime = time.Minute

func (r *run) sandbox(ctx context.Context, op *pb.ExecOp, base string) (*box, error) {
	network := r.req.Network
	switch {
	case op.Network == pb.NetMode_HOST:
		return nil, hutch.Errorf(hutch.Unsupported, "RUN --network=host is not possible: a sandbox has no network of the host; leave it out")
	case op.Security != pb.SecurityMode_SANDBOX:
		return nil, hutch.Errorf(hutch.Unsupported, "RUN --security=insecure is not possible: a sandbox has no privileges on the host; leave it out")
	case len(op.CdiDevices) > 0:
		return nil, hutch.Errorf(hutch.Unsupported, "RUN --device is not possible: a sandbox has no devices of the host; leave it out")
	case op.Network == pb.NetMode_NONE:
		network = hutch.Network{Mode: hutch.NetworkNone}
	}
	b, err := r.create(ctx, network, base)
	if err == nil && !r.opt.Sandboxes.HasRoot(b.runtime) {
		b.destroy()
		err = hutch.Errorf(hutch.Unsupported, "a RUN cannot be done on the runtime %s of this server, where no command can be root: give --runtime gvisor; for the runtime native, start the server as root or give its user subordinate ids (`hutch doctor` says how)", b.runtime)
	}
	return b, err
}

// create makes a sandbox of the build's owner.
func (r *run) create(ctx context.Context, network hutch.Network, base string) (*box, error) {
	left := r.req.Timeout
	if end, ok := ctx.Deadline(); ok {
		left = hutch.InSeconds(time.Until(end) + mostTime)
	}
	id := hutch.NewID(idPrefix)
	sb, err := r.opt.Sandboxes.Create(ctx, hutch.CreateRequest{
		ID: id, Image: base, Pull: hutch.PullNever, Runtime: r.req.Runtime, Network: network, Limits: r.req.Limits,
		Timeout: left, OnIdle: hutch.IdleDestroy, Labels: map[string]string{Label: r.id},
	})
	return &box{r, sb.ID, sb.Runtime}, err
}

// destroy ends the sandbox, also when the build was ended.
func (b *box) destroy() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.life), time.Minute)
	defer cancel()
	if _, err := b.opt.Sandboxes.Destroy(ctx, b.id, true); err != nil && !errors.Is(err, hutch.NotFound) {
		b.opt.Log.Warn("the sandbox of a build stays until its time is over", "sandbox", b.id, "err", err)
	}
}

// work runs the command and returns the layer that it wrote.
func (b *box) work(ctx context.Context, op *pb.ExecOp, m *mounts, before view) (*tree, error) {
	if err := b.bring(ctx, m, before); err != nil {
		return nil, err
	}
	env := op.Meta.Env
	for _, s := range op.Secretenv {
		value, ok := b.req.Secrets[s.ID]
		if !ok && !s.Optional {
			return nil, noSecret(s.ID)
		}
		if ok {
			env = append(env, s.Name+"="+value)
		}
	}
	lines := &logLines{run: b.run}
	code, err := b.opt.Sandboxes.RunProgram(ctx, b.id, op.Meta.Args, env, cmp.Or(op.Meta.Cwd, "/"), lines.take)
	if err = errors.Join(err, lines.end()); err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, hutch.Errorf(hutch.Invalid, "the command of %.300s ended with exit code %d: its output says why", b.v.title(), code).With("exitCode", code)
	}
	return b.written(ctx, m, before)
}

// written returns the layer with the changes of the command.
func (b *box) written(ctx context.Context, m *mounts, before view) (*tree, error) {
	out, err := b.tree("what " + b.v.title() + " writes")
	if err != nil {
		return nil, err
	}
	hidden := append([]string{}, m.hidden...)
	if err := stream(func(w io.Writer) error { return b.opt.Sandboxes.PackWritten(ctx, b.id, w) }, func(r io.Reader) error {
		return out.read(ctx, r, reading{place: func(name string, n *node) (string, bool) {
			return name, !image.Within(name, image.Provided) && !image.Within(name, hidden)
		}})
	}); err != nil {
		return nil, err
	}
	if err := b.keepCaches(ctx, m, out); err != nil {
		return nil, err
	}
	for _, name := range out.paths() {
		if out.nodes[name] != nil && sameFolder(out, before, name) {
			out.drop(name)
		}
	}
	names := &image.Names{Entries: b.store.Bounds().Entries, TooMany: errNames()}
	if err := b.opt.Sandboxes.ListWritten(ctx, b.id, names); err != nil {
		return nil, err
	}
	replaced := func(name string) bool { n := out.nodes[name]; return n != nil && !n.mode.IsDir() }
	return out, image.Removed(before.root, names.String(), append(hidden, m.caches()...), replaced, func(name string) error {
		return out.add(name, &node{mode: removed})
	})
}

// made are folders that each sandbox has, whatever its image.
var made = []string{"workspace", "data", "home", "home/user", "tmp", "var/tmp", "run", "."}

// sameFolder reports whether a folder of a layer has no changes.
func sameFolder(out *tree, before view, name string) bool {
	n := out.nodes[name]
	if !n.mode.IsDir() {
		return false
	}
	was, ok := before.lookup(name)
	if ok {
		return was.mode == n.mode && was.uid == n.uid && was.gid == n.gid
	}
	if len(out.children[name]) > 0 {
		return false
	}
	for _, dir := range made {
		if name == dir {
			return true
		}
	}
	return false
}

// stream passes the output of one function to another.
func stream(from func(io.Writer) error, to func(io.Reader) error) error {
	return pipe.Ahead(from, func(r io.Reader) error {
		if err := to(r); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, r) // data after the end of the archive
		return err
	})
}

// boundedBuffer refuses more than a number of bytes.
type boundedBuffer struct {
	*bytes.Buffer
	left int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errNames()
	}
	return b.Buffer.Write(p)
}

func errNames() error {
	return hutch.Errorf(hutch.Exhausted, "the files after the command have too many names: remove some in the same RUN").With("limit", "image entries")
}

// logLines passes on output line by line, a long line in pieces. No piece ends within a secret of the build.
type logLines struct {
	*run
	part []byte
	sent int
}

const (
	mostLine   = 8 << 10
	mostOutput = 16 << 20 // bytes of one step
)

func (l *logLines) take(o hutch.Output) error {
	l.part = append(l.part, o.Data...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		switch {
		case i >= 0 && i <= mostLine:
		case len(l.part) > mostLine:
			if i = l.cut(l.part, mostLine) - 1; i < 0 {
				return nil
			}
		default:
			return nil
		}
		line := l.part[:i+1]
		if err := l.send(line); err != nil {
			return err
		}
		l.part = l.part[i+1:]
	}
}

func (l *logLines) end() error {
	if len(l.part) == 0 {
		return nil
	}
	return l.send(l.part)
}

func (l *logLines) send(line []byte) error {
	if l.sent += len(line); l.sent > mostOutput {
		if l.sent-len(line) > mostOutput {
			return nil
		}
		return l.report(hutch.BuildLog, "the step has more than 16 MiB of output: the rest is not shown")
	}
	text := strings.TrimRight(string(line), "\r\n")
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return l.report(hutch.BuildLog, text)
}
