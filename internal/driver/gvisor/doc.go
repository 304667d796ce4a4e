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
// named after the place: the OCI bundle, runsc's state, the sentry's control
// socket and the agent's socket; and in one control group. The file that backs
// the written files has no name and goes with the sentry. So whatever moment a
// daemon is killed at, its leftovers are known by folder, group, and the
// folder's path in the command lines.
//
// # The image
//
// The root is a host image's folders, which the gofer opens, or an image's EROFS file,
// which the sentry reads by itself: its pages are shared by all sandboxes of the image,
// and its owners and permissions need no ids of the host. In both cases the written
// files are in a file of the host, and the place begins with a small archive of them:
// the user's folders, and all that an image may lack.
//
// # The pipe
//
// One folder inside is a small file system in memory, of 64 KiB and 256 files, which
// only root inside can enter. The gofer mounts it in its own mount namespace, so no
// folder of the host is writable from inside. The agent makes its socket there. gVisor
// makes that a socket of the host, and the daemon connects to it by
// /proc/PID/root of the gofer. No process is started for a connection, the sentry is
// not asked, and it works again after a restart of the daemon or a restore of the
// sandbox. The folder is as hostile as what is inside: the daemon follows no link in it.
//
// The sandbox's network is a stack in the sentry, with a loopback interface and,
// where it is asked for, a device whose packets come and go over a pair of
// sockets.
//
// runsc is only used to create. Starting, saving and restoring are calls on the
// control socket, and destroying is a kill: see docs/decisions/gvisor-create.md.
package gvisor
