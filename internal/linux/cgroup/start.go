package cgroup

import (
	"errors"
	"runtime"
)

// Start calls start, which starts a process. The process is born in the group,
// so nothing of it is ever outside: either start passes on the descriptor that
// it is given, to CLONE_INTO_CGROUP, or that is 0, and the thread that start runs
// on is in the group.
func (g *Group) Start(start func(group int) error) error {
	if g.tree.v1() {
		return g.start1(start)
	}
	dir, err := g.FD()
	if err != nil {
		return err
	}
	defer dir.Close()
	return start(int(dir.Fd()))
}

// start1 starts from a thread in the group. A thread that moves itself does so
// at once; moving a process from outside waits for a grace period of the
// kernel, 20 ms or more. A thread that cannot go back ends with the goroutine
// that locked it.
func (g *Group) start1(start func(int) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := enter(g.dirs())
		if err == nil {
			err = start(0)
		}
		back := enter(g.tree.home1)
		if back == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, back)
	}()
	return <-done
}

// enter moves this thread.
func enter(dirs []string) error {
	for _, dir := range dirs {
		if err := put(dir, "tasks", "0"); err != nil {
			return err
		}
	}
	return nil
}
