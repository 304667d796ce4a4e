// Package gvisor makes instances with gVisor, a kernel in user space between a program and the host's kernel. It needs
// neither KVM nor root.
//
// # An instance
//
// An instance is one gVisor sandbox: a process that is the kernel (the sentry), one that opens the image's files for it
// (the gofer), and the processes in which the sentry runs its programs, which live and die with it in its pid
// namespace. The sandbox's first process is the agent.
//
// Everything that belongs to an instance is in one folder below the driver's own, named after the instance: the OCI bundle,
// runsc's state, the sentry's control socket and the agent's socket; and in one control group. The file that stores the
// written files has no name and is removed with the sentry. So whenever a daemon is killed, its leftovers can be found
// by folder, group, and the folder's path in the command lines.
//
// # The image
//
// The root is a host image's folders, which the gofer opens, or an image's EROFS file, which the sentry reads itself:
// its pages are shared by all sandboxes of the image, and its owners and permissions need no ids of the host. In both
// cases the written files are in a file of the host, and the instance starts with a small archive of them: the user's
// folders, and everything that an image may lack.
//
// # The pipe
//
// One folder inside is a small file system in memory, of 64 KiB and 256 files, which only root inside can enter. The
// gofer mounts it in its own mount namespace, so no folder of the host is writable from inside. The agent makes its
// socket there. gVisor makes that a socket of the host, and the daemon connects to it by /proc/PID/root of the gofer. A
// connection starts no process and makes no call to the sentry, and it works again after a restart of the daemon or a
// restore of the sandbox. The folder is as hostile as the programs inside: the daemon follows no link in it.
//
// The sandbox's network is a stack in the sentry, with a loopback interface and, on request, a device whose packets
// travel over a pair of sockets.
//
// runsc is only used to create. Starting, saving and restoring are calls on the control socket, and destroying is a
// kill: see docs/decisions/gvisor-create.md.
package gvisor
