// Package kubernetes creates instances as pods of a Kubernetes cluster, through its API. It is for clusters that allow
// no server with privileges, and for isolation by the cluster's own runtime classes, such as gVisor or Kata.
//
// # An instance
//
// An instance is one pod. It is made from a template of the server's administrator, which has the namespace, the
// runtime class, the placement in the cluster and the image. An init container puts the agent's program into a volume,
// so that any image works. The container's first process is ours, and builds the instance around the agent: see package
// inside. It has no privileges over the machine. The programs of the instance have neither the pod's network nor a
// token of the cluster.
//
// # The connection to the agent
//
// The daemon reaches a pod only through "exec" of the cluster's API. So it needs no network to the pod, no port is open
// in the pod, and the cluster authenticates the daemon. One such stream carries all connections with an instance, and
// is opened again when it breaks.
//
// # Traces in the cluster
//
// An instance has one trace in the cluster, its pod. Labels of the pod name the instance and, by an id in the state
// folder, the server that made it. Sweep removes the pods with the id of its server for which keep returns false.
package kubernetes
