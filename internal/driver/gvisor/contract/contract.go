// Package contract is the contract between the gVisor driver and the programs that it starts: descriptors, signals and
// environment of hutch-runsc, and the names of the calls that gVisor's sentry answers. A test of hutch-runsc compares
// these names with gVisor's own.
package contract

import "syscall"

// Version is the version of this contract. A driver runs programs of other builds only if they have the same version of
// the contract. Increase it with each change that makes an older hutch-runsc unusable, including changes of gVisor's
// calls.
const Version = 1

// NetworkFD and DeviceFD are the two ends of a sandbox's network device in the process of its sentry: the end of the
// daemon, and the end of the sentry's network stack. The device is a pair of sockets, with one packet in each message,
// and not a device of the host. hutch-runsc makes both ends; they stay open, so a restarted daemon finds its end
// again.
const (
	NetworkFD = 900
	DeviceFD  = 901
)

// Hurry is the signal that announces to a sentry that its memory is about to be saved or restored. The sentry then
// collects its garbage less often for a while. Collect makes a sentry give back unused memory at once. A sentry passes
// neither signal on to the programs inside.
const (
	Hurry   = syscall.Signal(40)
	Collect = syscall.Signal(41)
)

// Gate is the environment variable with the number of a pipe's descriptor. hutch-runsc waits for a
// byte from that pipe before it starts anything: the daemon sends that byte when the process is in
// the sandbox's control group.
const Gate = "HUTCH_GATE"

// Masks is the annotation of a bundle with the paths to hide inside, as a JSON array: see [image.Root.Masks].
const Masks = "dev.hutch.masks"

// These are the calls of gVisor's sentry that the driver makes.
const (
	SetNetworkArgs   = "containerManager.SetNetworkArgs"
	StartRoot        = "containerManager.StartRoot"
	Restore          = "containerManager.Restore"
	Pause            = "containerManager.Pause"
	Resume           = "containerManager.Resume"
	Checkpoint       = "containerManager.Checkpoint"
	Signal           = "containerManager.Signal"
	ReadControlFiles = "Cgroups.ReadControlFiles"
)
