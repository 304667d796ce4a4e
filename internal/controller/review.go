package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hutch"
	"hutch/internal/controller/router"
)

const (
	reviewed   = 10 * time.Second // how long a decision of the cluster is used
	maxReviews = 4096             // decisions that are remembered
	maxAsks    = 32               // at a time, so that strangers do not keep the API from others
	workspace  = "/workspace"     // where commands run without a workingDir
)

// Directory tells a router which sandbox an object has, and who can use it.
type Directory struct {
	c    *Controller
	open bool   // everybody can use every sandbox
	aud  string // the audience that tokens are for; empty for the cluster itself
	asks chan struct{}

	mu      sync.Mutex
	reviews map[review]decision
}

type review struct {
	token           [sha256.Size]byte
	namespace, name string
}

type decision struct {
	err   error
	until time.Time
}

// newDirectory returns the directory of a controller's objects. Without open, callers need a token of the cluster, for
// the audience if it is not empty. The token's holder must have the right to create sandboxes/exec with that name in
// the namespace.
func newDirectory(c *Controller, open bool, audience string) *Directory {
	return &Directory{c: c, open: open, aud: audience, asks: make(chan struct{}, maxAsks), reviews: map[review]decision{}}
}

// Allow implements router.Directory.
func (d *Directory) Allow(ctx context.Context, token, namespace, name string) error {
	if d.open {
		return nil
	}
	if token == "" {
		return unauthenticated("the request has no token: send one of the cluster in the header Authorization, as extra_headers of the connection's configuration does")
	}
	key := review{sha256.Sum256([]byte(token)), namespace, name}
	if err, ok := d.remembered(key); ok {
		return err
	}
	err := d.ask(ctx, token, namespace, name)
	if err == nil || hutch.KindOf(err) == hutch.Denied {
		d.remember(key, err)
	}
	return err
}

func unauthenticated(message string) error {
	return hutch.Errorf(hutch.Denied, "%s", message).With("unauthenticated", true)
}

func (d *Directory) remembered(key review) (error, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.reviews[key]
	return found.err, ok && time.Now().Before(found.until)
}

func (d *Directory) remember(key review, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.reviews) >= maxReviews {
		clear(d.reviews)
	}
	d.reviews[key] = decision{err, time.Now().Add(reviewed)}
}

// ask asks the cluster whose token this is, and what its holder can do.
func (d *Directory) ask(ctx context.Context, token, namespace, name string) error {
	select {
	case d.asks <- struct{}{}:
		defer func() { <-d.asks }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	spec := map[string]any{"token": token}
	if d.aud != "" {
		spec["audiences"] = []any{d.aud}
	}
	var who struct {
		Authenticated bool
		Audiences     []string
		User          map[string]any
	}
	err := d.review(ctx, "authentication.k8s.io", "TokenReview", "tokenreviews", spec, &who)
	if err != nil {
		return err
	}
	if !who.Authenticated || d.aud != "" && !slices.Contains(who.Audiences, d.aud) {
		return unauthenticated("the cluster does not know this token: it has ended, or is for another audience")
	}
	spec = map[string]any{"resourceAttributes": map[string]any{
		"namespace": namespace, "name": name, "verb": "create", "group": sandboxes.Group, "resource": "sandboxes", "subresource": "exec",
	}}
	for to, from := range map[string]string{"user": "username", "groups": "groups", "uid": "uid", "extra": "extra"} {
		if v := who.User[from]; v != nil {
			spec[to] = v
		}
	}
	var can struct{ Allowed bool }
	if err := d.review(ctx, "authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", spec, &can); err != nil {
		return err
	}
	if !can.Allowed {
		return hutch.Errorf(hutch.Denied, "%v cannot use sandboxes in the namespace %q: give it the verb create on sandboxes/exec of %s there", who.User["username"], namespace, sandboxes.Group)
	}
	return nil
}

// review makes one review, and reads its status.
func (d *Directory) review(ctx context.Context, group, kind, resource string, spec map[string]any, into any) error {
	r := schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(r.GroupVersion().WithKind(kind))
	u, err := d.c.kube.Resource(r).Create(ctx, u, metav1.CreateOptions{})
	if err == nil {
		err = decodeField(u, "status", into)
	}
	if err != nil {
		d.c.log.Warn("the cluster does not answer a review", "kind", kind, "err", err)
		return hutch.Errorf(hutch.Unavailable, "the cluster does not say who may use this sandbox: try again, or ask who runs the controller to look at its log")
	}
	return nil
}

// Find implements router.Directory. A reported object is found without a call. If no object was reported, Find asks the
// cluster, because the object can be newer than the last report.
func (d *Directory) Find(ctx context.Context, namespace, name, uid string) (router.Target, error) {
	if d.c.opt.Namespace != "" && namespace != d.c.opt.Namespace {
		return router.Target{}, noSandbox(namespace, name)
	}
	target, err := d.usable(d.c.reported(sandboxes, namespace, name), namespace, name, uid)
	if err == nil {
		return target, nil
	}
	u, failed := d.c.get(ctx, sandboxes, namespace, name)
	if failed != nil {
		d.c.log.Warn("the cluster does not answer", "namespace", namespace, "name", name, "err", failed)
		return target, err
	}
	return d.usable(u, namespace, name, uid)
}

func noSandbox(namespace, name string) error {
	return hutch.Errorf(hutch.NotFound, "there is no Sandbox %q in the namespace %q that requests can be for", name, namespace)
}

// usable returns the sandbox of an object, if requests can use it. Requests cannot use a Sandbox of a pool that no
// claim has, because it belongs to the next claim.
func (d *Directory) usable(u *unstructured.Unstructured, namespace, name, uid string) (router.Target, error) {
	if u == nil || u.GetDeletionTimestamp() != nil || uid != "" && string(u.GetUID()) != uid {
		return router.Target{}, noSandbox(namespace, name)
	}
	s, err := decode[sandbox](u)
	if err != nil {
		return router.Target{}, hutch.Errorf(hutch.Internal, "%v", err)
	}
	if o := owner(s.ObjectMeta); o != nil && o.Kind == poolKind {
		return router.Target{}, noSandbox(namespace, name)
	}
	if s.suspended() {
		return router.Target{}, hutch.Errorf(hutch.Conflict, "the Sandbox %q is suspended: set its operatingMode to Running first", name)
	}
	if end := s.Spec.ShutdownTime; end != nil && !time.Now().Before(end.Time) {
		return router.Target{}, hutch.Errorf(hutch.Conflict, "the shutdownTime of the Sandbox %q is over", name)
	}
	return router.Target{Sandbox: s.id(), Dir: cmp.Or(translate(s.Spec.blueprint).program.dir, workspace)}, nil
}
