// Package inside is the inside of a native instance: it runs in the agent program, as the first process of its
// namespaces, before any untrusted program.
//
// It consists of two programs, one after the other in one process. The first has every capability over the instance's
// own namespaces. It builds the instance, drops the capabilities, and becomes the second program by exec, so that
// nothing of the first is left: no thread, descriptor or memory. The second program becomes the agent.
//
// The daemon communicates with it over two pipes. The first pipe ends when the daemon dies; an instance that has not
// received its whole configuration then ends at once.
package inside

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/mount"
	"hutch/internal/linux/netns"
	"hutch/internal/wire"
)

// Main runs the agent program if command, its first argument, is a command of this package; otherwise handled is false.
// run runs the agent.
func Main(command string, run func(wire.Boot) error) (handled bool, err error) {
	switch command {
	case initCommand:
		return true, report(build())
	case runCommand:
		boot, err := begin()
		if err != nil {
			return true, report(err)
		}
		return true, run(boot)
	}
	return false, nil
}

// report sends the daemon the reason why the instance failed.
func report(err error) error {
	fmt.Fprint(os.NewFile(statusFD, "status"), err)
	return err
}

// build is the first program. It returns only if it fails.
func build() error {
	// Capabilities, filters and namespaces belong to threads. Only this thread changes them, and only this thread
	// remains after exec.
	runtime.LockOSThread()
	unix.CloseOnExec(agentFD)
	config, err := receiveConfig(os.NewFile(configFD, "config"))
	if err != nil {
		return err
	}
	for _, step := range []func(Config) error{showAgent, openImage, makeNetwork, becomeRoot, setHostname, raiseLoopback, makeRoot, setLimits, leaveGroup, leaveKeyring, separate, dropPrivileges} {
		if err := step(config); err != nil {
			return err
		}
	}
	err = unix.Exec(Program, []string{InitArgs[0], runCommand}, Env)
	return fmt.Errorf("become the agent: %w", err)
}

func raiseLoopback(Config) error { return netns.RaiseLoopback() }

// showAgent is for an instance with one user. It mounts a read-only clone of the agent program's mount over the program
// from which this process was started. The second program runs from there, so it is visible inside, as /proc/PID/exe of
// a script whose interpreter is /proc/self/exe. The user owns its inode, but cannot change it, not even its mode,
// because the mount is read only. The first program is the file in memory from which all instances start. It has ended
// before the first command of the user begins.
func showAgent(c Config) error {
	if c.Agent == "" {
		return nil
	}
	t, err := mount.Clone(c.Agent, mount.ReadOnly|mount.NoSUID|mount.NoDev)
	if err != nil {
		return err
	}
	defer t.Close()
	return os.NewSyscallError("dup3", unix.Dup3(int(t), agentFD, unix.O_CLOEXEC))
}

// begin is the first part of the second program, before it becomes the agent.
func begin() (wire.Boot, error) {
	// Set the name that ps shows: exec has derived it from Program, which is a number.
	if err := os.WriteFile("/proc/self/comm", []byte(InitArgs[0]), 0); err != nil {
		return wire.Boot{}, err
	}
	// Without this, the user could read the agent's memory if both have the same id: exec has set the value to 1.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return wire.Boot{}, err
	}
	if err := clearInheritable(); err != nil {
		return wire.Boot{}, err
	}
	unix.CloseOnExec(listenFD)
	unix.CloseOnExec(NetworkFD)
	unix.CloseOnExec(NameFD)
	unix.CloseOnExec(HostsFD)
	unix.CloseOnExec(namespaceFD)
	config, status := os.NewFile(configFD, "config"), os.NewFile(statusFD, "status")
	defer config.Close()
	boot, err := receiveBoot(config)
	if err != nil {
		return wire.Boot{}, err
	}
	boot.Offer = true
	if boot.Apart {
		boot.Namespace = namespaceFD
	}
	unix.CloseOnExec(statusFD)
	if _, err := status.WriteString(ready); err != nil {
		return wire.Boot{}, err
	}
	return boot, status.Close()
}
