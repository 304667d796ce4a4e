// Package kubernetes creates instances as pods of a Kubernetes cluster, through its API. It is for clusters that allow
// no server with privileges, and for isolation by the cluster's own runtime classes, such as gVisor or Kata.
//
// # An instance
//
// An instance is one pod, made from the template that the server's administrator gives: its namespace, runtime class,
// place in the cluster and image. An init container puts the agent's program into a volume, so that any image works.
// The container's first process is ours, and builds the instance around the agent: see package inside. It has no
// privileges over the machine, and the programs of the instance have neither the pod's network nor a token of the
// cluster.
//
// # The way to the agent
//
// The daemon reaches a pod only through "exec" of the cluster's API: so it needs no network to the pod, no port is open
// in it, and the cluster says who it is. One such stream carries all connections with an instance, and is opened again
// when it breaks.
//
// # Traces in the cluster
//
// An instance has one trace in the cluster, its pod. Its labels name the server that made it, by an id in the state
// folder, and the instance. Sweep removes the pods with the id of its server that no caller claims.
package kubernetes
