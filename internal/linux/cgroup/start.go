package cgroup

import (
	"errors"
	"runtime"
)

// Start calls start, which starts a process that is in the group from its birth. Either start passes the given
// descriptor to CLONE_INTO_CGROUP, or the descriptor is 0 and start runs on a thread that is in the group.
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

// start1 starts from a thread in the group. A thread that moves itself does so at once; moving a process from outside
// waits for a grace period of the kernel, 20 ms or more. If the thread cannot move back, it stays locked to its
// goroutine and ends with it.
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

// enter moves this thread into the group with these folders.
func enter(dirs []string) error {
	for _, dir := range dirs {
		if err := put(dir, "tasks", "0"); err != nil {
			return err
		}
	}
	return nil
}
