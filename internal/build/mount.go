package build

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/moby/buildkit/solver/pb"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/oci"
)

// mounts are the mounts of a RUN. They are not real mounts: files are copied into the sandbox before the command, and
// are left out of its layer.
type mounts struct {
	root   *state
	binds  []bind
	cache  []cacheMount
	secret []*pb.Mount
	hidden []string // paths of binds, secrets and temporary files, which are not in the layer
}

type bind struct {
	from           *state
	selector, dest string
}

type cacheMount struct {
	key, dest string // the key in the store
	from      *state
	selector  string
	at        string // dest, resolved
}

const (
	mostMounts   = 100       // most mounts of a RUN
	mostVariable = 128 << 10 // bytes that Linux allows in a variable
)

// mounts reads the mounts of an operation.
func (r *run) mounts(op *pb.ExecOp) (*mounts, error) {
	if len(op.Mounts)+len(op.Secretenv) > mostMounts {
		return nil, hutch.Errorf(hutch.Exhausted, "a RUN has more than %d mounts: give it fewer", mostMounts).With("limit", "build mounts")
	}
	for _, s := range op.Secretenv {
		if len(r.req.Secrets[s.ID]) > mostVariable {
			return nil, hutch.Errorf(hutch.Exhausted, "the secret %.100q has more than %d KiB, which no variable can have: mount it as a file, without env=", s.ID, mostVariable>>10).With("limit", "build secrets")
		}
	}
	m := &mounts{root: &state{key: "scratch"}}
	for _, mt := range op.Mounts {
		from := &state{key: "scratch"}
		if mt.Input >= 0 && int(mt.Input) < len(r.inputs) {
			from = r.inputs[mt.Input]
		}
		switch {
		case mt.MountType == pb.MountType_BIND && mt.Dest == "/":
			m.root = from
		case mt.MountType == pb.MountType_BIND:
			m.binds = append(m.binds, bind{from, mt.Selector, mt.Dest})
		case mt.MountType == pb.MountType_CACHE:
			m.cache = append(m.cache, cacheMount{key: digestOf("cache mount", mt.CacheOpt.GetID()), dest: mt.Dest, from: from, selector: mt.Selector})
		case mt.MountType == pb.MountType_SECRET:
			m.secret = append(m.secret, mt)
		case mt.MountType == pb.MountType_TMPFS:
			m.hidden = append(m.hidden, clean(mt.Dest))
		default:
			return nil, hutch.Errorf(hutch.Unsupported, "RUN --mount=type=%s is not built here: use a secret in place of an SSH key", strings.ToLower(mt.MountType.String()))
		}
	}
	if m.root.image == "" {
		return nil, hutch.Errorf(hutch.Invalid, "a RUN needs files to run in: begin the stage with an image, or COPY a program into it before")
	}
	return m, nil
}

func (m *mounts) caches() (list []string) {
	for _, c := range m.cache {
		list = append(list, c.at)
	}
	return list
}

func noSecret(id string) error {
	return hutch.Errorf(hutch.NotFound, "the build has no secret %.100q: give it with --secret id=%.100s,src=FILE", id, id)
}

// bring puts the files of all mounts into the sandbox.
func (b *box) bring(ctx context.Context, m *mounts, before view) error {
	in, err := b.tree("the mounts of " + b.v.title())
	if err != nil {
		return err
	}
	for _, mt := range m.binds {
		at, err := b.hide(m, before, mt.dest)
		if err != nil {
			return err
		}
		if err := b.copyIn(ctx, in, mt.from, mt.selector, at); err != nil {
			return err
		}
	}
	for i := range m.cache {
		if err := b.bringCache(ctx, in, &m.cache[i], before); err != nil {
			return err
		}
	}
	for _, mt := range m.secret {
		if err := b.bringSecret(in, m, before, mt); err != nil {
			return err
		}
	}
	for i := range m.hidden { // the path of a tmpfs can lead through a link
		if m.hidden[i], err = before.resolve(m.hidden[i], true); err != nil {
			return err
		}
		dir := m.hidden[i]
		if _, ok := before.over(in).lookup(dir); !ok {
			if err := in.add(dir, &node{mode: fs.ModeDir | fs.ModeSticky | 0o777}); err != nil {
				return err
			}
		}
	}
	if len(in.nodes) == 0 {
		return nil
	}
	for _, name := range in.paths() {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := before.lookup(dir); ok || in.nodes[dir] != nil {
				continue
			}
			if err := in.add(dir, &node{mode: fs.ModeDir | 0o755}); err != nil {
				return err
			}
		}
	}
	return stream(in.write, func(r io.Reader) error { return b.opt.Sandboxes.UnpackWritten(ctx, b.id, r) })
}

// hide returns the path of a mount in the files of the stage. Files at that path are left out of the layer.
func (b *box) hide(m *mounts, before view, dest string) (string, error) {
	at, err := before.resolve(dest, true)
	if err == nil && at == "." {
		err = errOverRoot
	}
	m.hidden = append(m.hidden, at)
	return at, err
}

var errOverRoot = hutch.Errorf(hutch.Invalid, "a mount over / is not possible: choose a folder below it")

// copyIn copies the files at a path of a state to a path of a tree.
func (b *box) copyIn(ctx context.Context, in *tree, from *state, selector, to string) error {
	v, err := b.view(ctx, from)
	if err != nil {
		return err
	}
	at, err := v.resolve(selector, true)
	if err != nil {
		return err
	}
	if _, ok := v.lookup(at); !ok {
		return missing(selector)
	}
	w := &fileWork{ctx: ctx, out: in, now: time.Now(), max: b.store.Bounds().Ratio}
	c := &copying{fileWork: w, from: v, to: view{ctx: ctx}.over(in), a: &pb.FileActionCopy{Mode: -1, AlwaysReplaceExistingDestPaths: true}}
	return c.files(at, to, false)
}

func (b *box) bringCache(ctx context.Context, in *tree, c *cacheMount, before view) (err error) {
	if c.at, err = before.resolve(c.dest, true); err == nil && c.at == "." {
		err = errOverRoot
	}
	if err != nil {
		return err
	}
	if err := in.add(c.at, &node{mode: fs.ModeDir | 0o777}); err != nil {
		return err
	}
	img, ok := b.store.Step(b.owner, c.key)
	if !ok {
		if c.from.image == "" && len(c.from.trees) == 0 {
			return nil
		}
		return b.copyIn(ctx, in, c.from, c.selector, c.at)
	}
	kept := &state{key: img.Digest, image: img.Digest, trees: []*layer{b.stored(ctx, img.Digest)}}
	return b.copyIn(ctx, in, kept, "/", c.at)
}

// keepCaches removes the files of cache mounts from a layer, and keeps them for the next build.
func (b *box) keepCaches(ctx context.Context, m *mounts, out *tree) error {
	for _, c := range m.cache {
		kept, err := b.tree("the cache mount " + c.dest)
		if err != nil {
			return err
		}
		for _, name := range out.paths() {
			if !image.Within(name, []string{c.at}) {
				continue
			}
			if n := out.nodes[name]; name != c.at && n != nil {
				if err := kept.take(out, n, clean(strings.TrimPrefix(name, c.at))); err != nil {
					return err
				}
			}
		}
		out.forget(c.at)
		out.drop(c.at)
		if _, err := b.store.AddStep(ctx, oci.StepOptions{Owner: b.owner, Key: c.key, By: "cache mount", Fill: kept.write}); err != nil {
			return err
		}
	}
	return nil
}

// take copies a node of another tree.
func (t *tree) take(from *tree, n *node, name string) error {
	moved := *n
	if n.mode.IsRegular() {
		content, err := from.open(n)
		if err == nil {
			err = t.keep(&moved, content)
		}
		if err != nil {
			return err
		}
	}
	return t.add(name, &moved)
}

// bringSecret puts a secret where the command finds it.
func (b *box) bringSecret(in *tree, m *mounts, before view, mt *pb.Mount) error {
	value, ok := b.req.Secrets[mt.SecretOpt.GetID()]
	if !ok {
		if mt.SecretOpt.GetOptional() {
			return nil
		}
		return noSecret(mt.SecretOpt.GetID())
	}
	at, err := b.hide(m, before, mt.Dest)
	if err != nil {
		return err
	}
	if dir := path.Dir(at); dir == "run/secrets" { // the default folder, made only for secrets
		m.hidden = append(m.hidden, dir)
	}
	n := &node{mode: fs.FileMode(mt.SecretOpt.GetMode()).Perm(), uid: int(mt.SecretOpt.GetUid()), gid: int(mt.SecretOpt.GetGid())}
	return errors.Join(in.keep(n, strings.NewReader(value)), in.add(at, n))
}
