// Hutch-agent is the first program in every sandbox. A runtime driver starts it, never a person; package agent does
// the work.
package main

import (
	"fmt"
	"os"
	"runtime"

	"hutch/internal/agent"
	docker "hutch/internal/driver/docker/inside"
	gvisor "hutch/internal/driver/gvisor/inside"
	pod "hutch/internal/driver/kubernetes/inside"
	native "hutch/internal/driver/native/inside"
	"hutch/internal/tarball"
	"hutch/internal/wire"
)

var commit = "unknown" // set by the linker

func main() {
	runtime.MemProfileRate = 0 // saves memory and time: no code reads a profile
	agent.Build = commit
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-agent:", err)
		os.Exit(1)
	}
}

// run chooses the sub-command. Some of them build the instance around the agent before they become the agent.
func run(args []string) error {
	switch {
	case len(args) == 0:
		return serve()
	case args[0] == "--version":
		fmt.Println("hutch-agent", commit)
		return nil
	case args[0] == "pack":
		return tarball.Pack(os.Stdout, "/", args[1:]...)
	case args[0] == "unpack":
		return tarball.Unpack(os.Stdin, "/")
	case args[0] == "list":
		return tarball.List(os.Stdout, "/")
	case args[0] == gvisor.Hold:
		gvisor.Wait()
		return nil
	case args[0] == "gvisor":
		boot, err := agent.TakeBoot()
		if err != nil {
			return err
		}
		if err := gvisor.RenewPass(&boot); err != nil {
			return err
		}
		if boot.Namespace, err = gvisor.Prepare(nil, args[1:], boot.Apart); err != nil {
			return err
		}
		return agent.Run(boot)
	case args[0] == "docker":
		boot, err := docker.Boot()
		if err != nil {
			return err
		}
		if _, err := gvisor.Prepare(boot.Filter, nil, false); err != nil {
			return err
		}
		boot.Offer = true
		boot.Filter = nil // the agent's children inherit it
		return agent.Run(boot)
	}
	if handled, err := pod.Main(args, servePod); handled {
		return err
	}
	if handled, err := native.Main(args[0], agent.Run); handled {
		return err
	}
	return fmt.Errorf("unknown argument %q", args[0])
}

// servePod is the agent of a pod. The agent has no filter itself, because it changes the host name: each program loads
// the filter when it starts.
func servePod(boot wire.Boot) error {
	if _, err := gvisor.Prepare(nil, nil, false); err != nil {
		return err
	}
	boot.Offer = true
	return agent.Run(boot)
}

func serve() error {
	boot, err := agent.TakeBoot()
	if err != nil {
		return err
	}
	return agent.Run(boot)
}
