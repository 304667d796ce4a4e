package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"hutch"
	"hutch/internal/controller/router"
)

// Config is the configuration of a controller and its router.
type Config struct {
	Kubeconfig string // file; empty for $KUBECONFIG, else the cluster in which this is a pod, else ~/.kube/config
	Namespace  string // the controller works on its objects; empty for all namespaces
	Lease      string // NAMESPACE/NAME; empty if there is no other controller
	Identity   string // distinguishes this controller from others
	Open       bool   // the router asks for no token
	Audience   string // the audience that tokens for the router have; empty for that of the cluster's API
	TLS        *tls.Config
	Log        *slog.Logger
}

// Run runs a controller and, on a listener, its router until ctx is done.
func Run(ctx context.Context, svc hutch.Service, l net.Listener, cfg Config) error {
	klog.SetSlogLogger(cfg.Log)
	kube, err := connect(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	lease := Lease{Identity: cfg.Identity}
	if cfg.Lease != "" {
		var ok bool
		if lease.Namespace, lease.Name, ok = strings.Cut(cfg.Lease, "/"); !ok || lease.Namespace == "" || lease.Name == "" {
			return hutch.Errorf(hutch.Invalid, "the lease %.80q is not NAMESPACE/NAME", cfg.Lease)
		}
	}
	c, err := New(kube, svc, Options{Namespace: cfg.Namespace, Lease: lease, Log: cfg.Log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	addr, ok := l.Addr().(*net.TCPAddr)
	routed := router.New(router.Options{
		Service: svc, Directory: newDirectory(c, cfg.Open, cfg.Audience), Loopback: cfg.Open && ok && addr.IP.IsLoopback(),
	})
	server := &http.Server{
		Handler: routed, TLSConfig: cfg.TLS, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan struct{})
	close(served)
	err = c.Run(ctx, func() {
		served = make(chan struct{})
		go func() {
			defer close(served)
			if err := serve(server, l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serve the router: %w", err))
			}
		}()
		cfg.Log.Info("the router serves", "address", l.Addr().String(), "token", !cfg.Open)
	})
	stop(server, routed)
	<-served
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

func serve(server *http.Server, l net.Listener) error {
	if server.TLSConfig != nil {
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

// stop lets requests end for a moment, and then ends them.
func stop(server *http.Server, routed *router.Handler) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
	routed.Close()
}

// connect returns a client of the cluster.
func connect(kubeconfig string) (dynamic.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "there is no cluster to control: %v; give a file with --kubeconfig, or run this in a pod with a service account", err)
	}
	cfg.QPS = -1 // the API server limits its clients by itself
	cfg.UserAgent = "hutch-controller"
	return dynamic.NewForConfig(cfg)
}
