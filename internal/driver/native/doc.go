// Package native makes places with the kernel's own means: namespaces, control
// groups, seccomp. A place is quick to make and its programs run at full speed,
// but they share the host's kernel: it is for code that is trusted more than
// gvisor's.
//
// # A place
//
// One clone makes the namespaces and the first process in them. That executes
// the agent program, which puts the place together (package place), gives up
// what it may, and becomes the agent. The daemon hands it all it needs by
// descriptor: the socket it listens on, the trees of the image, the program
// itself. As an ordinary user the program is, once the place is put together, the
// file on disk, from a mount that is read only.
//
// As root, every place has two ids of the host that nothing else has: one for
// the agent, which is root inside, and one for the user. As an ordinary user
// there is one id, the caller's own, and the agent protects itself from the
// commands that share it by not being dumpable and by the seccomp filter.
//
// A place of an image has a range of ids in place of one, because an image's files
// have many owners; as an ordinary user there is one id all the same, and all files
// belong to the user inside.
//
// A place that is to have a network makes its device itself, in its own network
// namespace, and its agent keeps the other end: so that goes with the place, and
// the daemon copies it from there whenever it starts. No program inside can; and
// what it would gain is to see what it has sent.
//
// To reach a server inside, the daemon has a child make a socket in there.
//
// # What is outside
//
// A folder below the driver's own, named after the place, with the record of
// its process and the socket; and a control group named after both. The record
// is written before the daemon sends the place anything, and a place that gets
// nothing ends: so whenever a daemon is killed, Sweep finds everything.
package native
