package native

import (
	"sync"

	"hutch/internal/linux/mount"
)

// imageMounts are the mounts of image files that instances use. The kernel caches pages separately for each mount of a
// file, so all instances of an image get copies of the same mount.
type imageMounts struct {
	mu  sync.Mutex
	all map[string]*imageMount // by path of the file
}

type imageMount struct {
	tree mount.Tree
	uses int
}

// take returns a mount of a file. The caller closes it, and calls release when the instance that uses it is gone.
func (m *imageMounts) take(path string) (tree mount.Tree, release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shared := m.all[path]
	if shared == nil {
		if tree, err = mountFile(path); err != nil {
			return -1, nil, err
		}
		shared = &imageMount{tree: tree}
	}
	if tree, err = shared.tree.Copy(); err != nil { // Linux before 6.15 cannot copy a mount that is not attached
		if shared.uses == 0 {
			return shared.tree, func() {}, nil
		}
		tree, err = mountFile(path)
		return tree, func() {}, err
	}
	if m.all == nil {
		m.all = map[string]*imageMount{}
	}
	m.all[path] = shared
	shared.uses++
	return tree, sync.OnceFunc(func() { m.release(path, shared) }), nil
}

func (m *imageMounts) release(path string, shared *imageMount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if shared.uses--; shared.uses == 0 {
		shared.tree.Close()
		delete(m.all, path)
	}
}
