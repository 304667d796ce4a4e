// Package gvisor makes places with gVisor, a kernel in user space that stands
// between a program and the host's kernel. It needs neither KVM nor root.
//
// # A place
//
// A place is one gVisor sandbox: a process that is the kernel (the sentry), one
// that opens the image's files for it (the gofer), and the processes that the
// sentry runs its programs in, which live and die with it in its pid
// namespace. The sandbox's first process is the agent.
//
// Everything that belongs to a place lies in one folder below the driver's own,
// named after the place: the OCI bundle, runsc's state, the control socket and
// a short log; and in one control group. The file that backs the written files
// has no name and goes with the sentry. So whatever moment a daemon is killed
// at, its leftovers are known by folder, group, and the folder's path in the
// command lines.
//
// # The pipe
//
// The sandbox has a network stack of its own with nothing but a loopback
// interface. The agent listens there, below port 1024, which the ordinary user
// cannot take. To dial, the sentry is asked over its control socket to connect
// a socket that we hand it to that port. No process is started for it, nothing
// of the host is open inside, and it works again after a restart of the daemon
// or a restore of the sandbox.
//
// runsc is only used to create. Starting, limits and dialling are calls on the
// control socket, and destroying is a kill: see docs/decisions/gvisor-create.md.
package gvisor
