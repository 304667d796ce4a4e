package build

import (
	"context"
	"errors"
	"os"

	"hutch/internal/oci"
)

// state is the files after an operation.
type state struct {
	key   string // equal keys mean equal files
	image string // digest of the image with its layers; empty if the files are not an image, or if there are none

	root  string // digest of the image at the bottom of its view; empty for none
	trees []*layer
}

// layer is a tree that is read on its first use.
type layer struct {
	tree *tree
	load func() (*tree, error)
}

func (l *layer) open() (*tree, error) {
	if l.tree != nil {
		return l.tree, nil
	}
	t, err := l.load()
	if err == nil {
		l.tree = t
	}
	return t, err
}

// over returns a state with one layer more.
func (s *state) over(image string, l *layer) *state {
	return &state{key: image, image: image, root: s.root, trees: append(s.trees[:len(s.trees):len(s.trees)], l)}
}

// files are the open files of a build; all of them are removed with the build.
type files struct {
	store *oci.Store
	owner string

	left  *budget         // budget of all trees
	roots map[string]view // by digest
	open  []*os.File
	made  []string // steps that were given a root file system
}

func (f *files) close() {
	for _, file := range f.open {
		file.Close()
	}
	f.store.DropStepRoots(f.owner, f.made)
}

// tree returns a new tree, with the limits of an image and of the owner.
func (f *files) tree(what string) (*tree, error) {
	file, err := f.store.TempFile()
	if err != nil {
		return nil, err
	}
	f.open = append(f.open, file)
	l := f.store.Bounds()
	bytes := min(l.Bytes, f.store.RoomLeft(f.owner))
	if f.left == nil {
		f.left = &budget{bytes: 3 * bytes, entries: 3 * l.Entries}
	}
	return newTree(file, what, limits{bytes: bytes, entries: l.Entries, path: l.Path, shared: f.left}), nil
}

// rootOf opens the file system of an image.
func (f *files) rootOf(ctx context.Context, digest string) (view, error) {
	if v, ok := f.roots[digest]; ok {
		return v, nil
	}
	path, err := f.store.Root(ctx, f.owner, digest)
	if err != nil {
		return view{}, err
	}
	f.made = append(f.made, digest)
	root, file, err := openRoot(path)
	if err != nil {
		return view{}, err
	}
	f.open = append(f.open, file)
	f.roots[digest] = view{ctx: ctx, root: root, file: file}
	return f.roots[digest], nil
}

// view shows the files of a state.
func (f *files) view(ctx context.Context, s *state) (view, error) {
	v := view{ctx: ctx}
	if s.root != "" {
		var err error
		if v, err = f.rootOf(ctx, s.root); err != nil {
			return v, err
		}
	}
	for _, l := range s.trees {
		t, err := l.open()
		if err != nil {
			return v, err
		}
		v = v.over(t)
	}
	return v, nil
}

// stored returns the last layer of a step in the store.
func (f *files) stored(ctx context.Context, digest string) *layer {
	return &layer{load: func() (*tree, error) {
		t, err := f.tree("a layer of the image")
		if err != nil {
			return nil, err
		}
		in, err := f.store.TopLayer(ctx, f.owner, digest)
		if err != nil {
			return nil, err
		}
		return t, errors.Join(t.read(ctx, in, reading{layer: true}), in.Close())
	}}
}
