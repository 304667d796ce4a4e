package main

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/controller"
	"hutch/internal/listen"
)

// kubernetesController is the controller as the flags describe it.
type kubernetesController struct {
	controller.Config
	listen, auth, cert, key string
	verbose                 bool
}

func newController(h *home, std streams) *cobra.Command {
	var k kubernetesController
	c := &cobra.Command{
		Use: "controller [flags]", Short: "Make sandboxes of agent-sandbox objects in Kubernetes",
		Long: `Make a sandbox of the server for each object Sandbox (agents.x-k8s.io) of a Kubernetes
cluster, also for those of SandboxClaims and SandboxWarmPools, and lead requests to
them: clients of agent-sandbox, such as the Python package k8s-agent-sandbox, then use
Hutch's sandboxes. There is no pod for a sandbox.

The cluster needs the resources of deploy/kubernetes/agent-sandbox. Of several
controllers one works at a time, and all of them route requests.
` + remoteHelp,
		Example: `  HUTCH_URL=http://hutch.hutch:7700 HUTCH_TOKEN=... hutch controller --listen :8080
  hutch controller --kubeconfig ~/.kube/config --lease ""`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return k.run(c.Context(), h, std) },
	}
	f := c.Flags()
	f.StringVar(&k.Kubeconfig, "kubeconfig", "", "`FILE` that names the cluster (default: $KUBECONFIG, else the cluster that this is a pod of, else ~/.kube/config)")
	f.StringVar(&k.Namespace, "namespace", "", "work on the objects of this namespace (default: of all)")
	f.StringVar(&k.Lease, "lease", "agent-sandbox-system/hutch-controller", "`NAMESPACE/NAME` of the Lease that one of several controllers holds; empty if there is one only")
	f.StringVar(&k.listen, "listen", "127.0.0.1:8080", "address of the router")
	f.StringVar(&k.auth, "router-auth", "token", "what requests to the router need: token, a token of the cluster that can create sandboxes/exec; or none")
	f.StringVar(&k.Audience, "audience", "", "audience that tokens for the router must have (default: that of the cluster's API)")
	f.StringVar(&k.cert, "tls-cert", "", "`FILE` with the certificate of the router, in PEM; without it the router speaks HTTP")
	f.StringVar(&k.key, "tls-key", "", "`FILE` with the certificate's key")
	f.BoolVarP(&k.verbose, "verbose", "v", false, "log more")
	return c
}

func (k *kubernetesController) run(ctx context.Context, h *home, std streams) error {
	switch k.auth {
	case "none":
		k.Open = true
	case "token":
	default:
		return usageError{fmt.Errorf("--router-auth is %q: use token or none", k.auth)}
	}
	if (k.cert == "") != (k.key == "") {
		return usageError{fmt.Errorf("--tls-cert and --tls-key go together: give both")}
	}
	k.Log, k.Identity = workerLog(std, k.verbose), hutch.NewID("controller")
	var err error
	if k.cert != "" {
		if k.TLS, err = listen.Files(k.cert, k.key, k.Log); err != nil {
			return err
		}
	}
	svc, err := h.dial()
	if err != nil {
		return err
	}
	defer svc.Close()
	if _, err := svc.Sandboxes(ctx, hutch.Filter{Brief: true}); err != nil {
		return err // reported at the start, and not only for the first object
	}
	l, err := net.Listen("tcp", k.listen)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: give another address with --listen", err)
	}
	defer l.Close()
	if addr, ok := l.Addr().(*net.TCPAddr); k.Open && ok && !addr.IP.IsLoopback() {
		k.Log.Warn("with --router-auth none, any program that reaches this address can use every sandbox: let only trusted programs reach it", "address", l.Addr().String())
	}
	return controller.Run(ctx, svc, l, k.Config)
}
