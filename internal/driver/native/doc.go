// Package native makes instances with the kernel's own means: namespaces, control groups, seccomp. An instance is fast
// to create, and its programs run at full speed, but they share the host's kernel. So native is for code that is
// trusted more than code that runs on gvisor.
//
// # An instance
//
// One clone makes the namespaces and the first process in them. That process executes the agent program, which builds
// the instance (package inside), drops its privileges, and becomes the agent. The daemon passes everything that it
// needs by descriptor: the socket it listens on, the trees of the image, the program itself. For an ordinary user, the
// program is the file on disk once the instance is built, from a read-only mount.
//
// As root, every instance has two ids of the host that nothing else has: one for the agent, which is root inside, and
// one for the user. For an ordinary user, there is only one id, the caller's own. The agent protects itself from the
// commands that share this id by not being dumpable, and by the seccomp filter.
//
// An instance of an image has a range of ids instead of one, because an image's files have many owners. For an ordinary
// user there is still only one id, and all files belong to the user inside.
//
// An instance with a network makes its device itself, in its own network namespace, and its agent keeps the other end.
// So the device ends with the instance, and the daemon copies the other end from the agent whenever the daemon starts.
// No program inside can copy it; it would only see its own packets.
//
// To reach a server inside, the daemon makes a child process create a socket in the network namespace of the instance.
//
// # What is outside
//
// Outside of it, an instance has a folder below the driver's own, named after the instance, with the record of its
// process and the socket. It also has a control group named after both folders. The record is written before the daemon
// sends anything to the instance, and an instance that receives nothing ends. So whenever a daemon is killed, Sweep
// finds everything.
package native
