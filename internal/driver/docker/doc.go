// Package docker creates instances with a Docker engine, through its API. It is for hosts where sandboxes have to be
// containers. The engine must be on this host, because it binds files of this host into containers.
//
// # An instance
//
// An instance is one container with the agent as its first process. Its root is read only. For a host image, the root is
// a Docker image that is made once from the image's skeleton, with the folders of the host bound over it, read only. For
// an image that is an EROFS file, a Docker image with all its files is made once. Its files stay read only, because the
// engine does not limit writes to disk. The folders of the user and all files that the instance writes are in memory.
// The container has no Docker network, only the agent's capabilities, and Docker's own seccomp profile. The agent adds
// the filter of the runtime native.
//
// The daemon and the agent connect through a socket in a folder that both can see. In the container, only root can reach
// it. The daemon sends the boot message through the container's standard input. The message contains the token, and
// Docker stores arguments and environment on disk.
//
// # Root and other users
//
// As root, the daemon enters the namespaces of a container to create its network device and open the device's other end,
// to connect to a server in the container, and to change the host name. If the daemon runs as an ordinary user that can
// use the engine's socket, instances have no network.
//
// The network device is persistent: it belongs to the network namespace and not to a descriptor. So a later daemon can
// open it again, and no process in the container has to keep it.
//
// # Traces on the host
//
// An instance has three traces on the host:
//
//   - a folder below the driver's own, named after the instance
//   - the container, with the driver's folder in a label
//   - the Docker image, with the skeleton's folder in a label; all drivers on this host share it
//
// Sweep removes the containers of its folder for which keep returns false, and the images whose skeleton or file no
// longer exists. It changes nothing else in the engine.
package docker
