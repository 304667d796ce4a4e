// Package gvisor makes instances with gVisor, a kernel in user space between a program and the host's kernel. It needs
// neither KVM nor root.
//
// # An instance
//
// An instance is one gVisor sandbox. It consists of a process that is the kernel (the sentry), a process that opens the
// image's files for the sentry (the gofer), and the processes in which the sentry runs its programs. All of these live
// and die with the sentry in its pid namespace. The sandbox's first process is the agent.
//
// Everything that belongs to an instance is in its control group and in its folder. The folder is below the driver's
// own, and named after the instance. It has the OCI bundle, runsc's state, the sentry's control socket and the agent's
// socket. The file that stores the written files has no name, and is removed with the sentry. So whenever a daemon is
// killed, its leftovers can be found by folder, by group, and by the folder's path in the command lines.
//
// # The image
//
// The root is either the folders of a host image, which the gofer opens, or the EROFS file of an image. The sentry
// reads the EROFS file itself: all sandboxes of the image share its pages, and its owners and permissions need no ids
// of the host. In both cases the written files are in a file of the host. The instance starts with a small archive of
// written files: the user's folders, and everything that an image can lack.
//
// # The pipe
//
// One folder inside is a small file system in memory, of 64 KiB and 256 files. Only root inside can enter it. The gofer
// mounts it in its own mount namespace, so no folder of the host is writable from inside. The agent makes its socket
// there. gVisor makes that a socket of the host, and the daemon connects to it by /proc/PID/root of the gofer. A
// connection starts no process and makes no call to the sentry, and it works again after a restart of the daemon or a
// restore of the sandbox. The folder is as hostile as the programs inside, so the daemon follows no link in it.
//
// The sandbox's network is a stack in the sentry, with a loopback interface and, on request, a device whose packets
// travel over a pair of sockets.
//
// runsc is only used to create. Starting, saving and restoring are calls on the control socket, and destroying is a
// kill: see docs/decisions/gvisor-create.md.
package gvisor
