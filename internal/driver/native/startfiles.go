package native

import (
	"os"

	"hutch/internal/driver/native/inside"
	"hutch/internal/linux/mount"
)

// startFiles holds the descriptors that an instance starts with.
type startFiles struct {
	config, status *os.File // the server's ends of the two pipes
	// files and trees have the instance's descriptors, in the order of package inside. The server closes them when the
	// instance has them.
	files []*os.File
	trees []mount.Tree
	// program stays open in the server.
	program *os.File
}

// newStartFiles opens all files. It replaces the binds in config by the opened trees.
func (i *instance) newStartFiles(config *inside.Config) (b *startFiles, err error) {
	b = &startFiles{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.program, err = i.driver.program.open(i.driver.agent); err != nil {
		return b, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return b, err
	}
	b.files = append(b.files, null)
	listener, err := listen(i.dir)
	if err != nil {
		return b, err
	}
	b.files = append(b.files, listener)
	theirs, mine, err := os.Pipe()
	if err != nil {
		return b, err
	}
	b.files, b.config = append(b.files, theirs), mine
	if b.status, theirs, err = os.Pipe(); err != nil {
		return b, err
	}
	b.files = append(b.files, theirs)
	if i.driver.root {
		b.trees, err = openTrees(config)
	}
	return b, err
}

// descriptors returns the instance's descriptors, in the order of their numbers from 0 on.
func (b *startFiles) descriptors() []int {
	null := int(b.files[0].Fd())
	fds := []int{null, null, null}
	for _, f := range append(b.files[1:4:4], b.program) {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, null, null, null, null) // for the network device, the files with the host name, and a namespace
	for _, t := range b.trees {
		fds = append(fds, int(t))
	}
	return fds
}

// closeChildFiles closes the instance's descriptors.
func (b *startFiles) closeChildFiles() {
	for _, f := range b.files {
		f.Close()
	}
	closeTrees(b.trees)
	b.files, b.trees = nil, nil
}

func (b *startFiles) close() {
	b.closeChildFiles()
	for _, f := range []*os.File{b.config, b.status} {
		if f != nil {
			f.Close()
		}
	}
}
