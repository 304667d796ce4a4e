// Package docker makes instances with a Docker engine, through its API: for hosts where
// sandboxes have to be containers. The engine must be on this host, because it
// binds files of this host into containers.
//
// # An instance
//
// An instance is one container with the agent as its first process. Its root is read
// only: a Docker image that is made once from the skeleton of the host image, with
// the folders of the host bound over it, read only. Of an image that is an EROFS file
// a Docker image is made once, too, with all its files, which stay read only: the
// engine does not bound what is written to disk. The folders of the user are in
// memory, and so is everything that the instance writes. The container has no network of
// Docker's, no capability but those of the agent, and Docker's own seccomp profile;
// the agent adds the filter of the runtime native.
//
// The daemon and the agent meet at a socket in a folder that both see. Inside, only
// root can reach it. The boot message goes through the container's standard input, because
// Docker keeps arguments and environment on disk, and the message holds the
// token.
//
// # What takes root
//
// As root, the daemon enters the namespaces of a container: to make its network
// device and open the other end of it, to connect to a server inside, and to change the
// host name. As an ordinary user, who can use the engine's socket, instances have
// no network.
//
// The network device is persistent: it belongs to the network namespace and not to a
// descriptor, so a later daemon opens it again, and no process inside has to keep it.
//
// # What is outside
//
// A folder below the driver's own, named after the instance; the container, with the
// driver's folder in a label; and the image, with the skeleton's folder in a
// label, which all drivers on this host share. Sweep removes the containers of its folder that
// no caller claims, and the images whose skeleton, or file, is gone. It touches nothing else in
// the engine.
package docker
