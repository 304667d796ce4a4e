// Package native makes instances with the kernel's own means: namespaces, control groups, seccomp. An instance is fast to
// create and its programs run at full speed, but they share the host's kernel: it is for code that is trusted more than
// gvisor's.
//
// # An instance
//
// One clone makes the namespaces and the first process in them. That process executes the agent program, which builds
// the instance (package inside), drops its privileges, and becomes the agent. The daemon passes everything that it needs by
// descriptor: the socket it listens on, the trees of the image, the program itself. For an ordinary user the program
// is, once the instance is built, the file on disk, from a mount that is read only.
//
// As root, every instance has two ids of the host that nothing else has: one for the agent, which is root inside, and one
// for the user. For an ordinary user there is one id, the caller's own, and the agent protects itself from the commands
// that share it by not being dumpable and by the seccomp filter.
//
// An instance of an image has a range of ids instead of one, because an image's files have many owners; for an ordinary
// user there is still only one id, and all files belong to the user inside.
//
// An instance with a network makes its device itself, in its own network namespace, and its agent keeps the other end: so
// the device ends with the instance, and the daemon copies it from there whenever it starts. No program inside can; it
// would only see its own packets.
//
// To reach a server inside, the daemon has a child process make a socket there.
//
// # What is outside
//
// A folder below the driver's own, named after the instance, with the record of its process and the socket; and a control
// group named after both. The record is written before the daemon sends the instance anything, and an instance that gets
// nothing ends: so whenever a daemon is killed, Sweep finds everything.
package native
