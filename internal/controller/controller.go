// Package controller is a controller for the agent-sandbox API of Kubernetes: objects of the kinds Sandbox, SandboxTemplate,
// SandboxClaim and SandboxWarmPool become sandboxes of a Hutch server, through any hutch.Service. There is no pod for a
// sandbox.
//
// A Sandbox has exactly one sandbox on the server, whose id contains the object's UID. A finalizer keeps the object
// until that sandbox is destroyed, however long the server is away. Each step is idempotent: the API's objects and the
// server have all state, so a controller can end at any step. Of several controllers, only the holder of a Lease works.
// All of them route requests to sandboxes, with package router.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"hutch"
)

const (
	workers = 8
	// resync is how often an object is compared with the server when neither of them reports a change.
	resync = 10 * time.Minute
	// callTime bounds one step of an object; a create can pull an image.
	callTime = 10 * time.Minute
)

// Options configure a controller.
type Options struct {
	// Namespace is the namespace whose objects the controller works on; empty for all.
	Namespace string
	// Lease says which of several controllers works. Its name can be empty: then this controller always works.
	Lease Lease
	Log   *slog.Logger
}

// Controller makes the sandboxes of a server match the objects of a cluster.
type Controller struct {
	opt   Options
	kube  dynamic.Interface
	svc   hutch.Service
	log   *slog.Logger
	seen  map[schema.GroupVersionResource]cache.SharedIndexInformer // what the cluster reported, perhaps some time ago
	queue workqueue.TypedRateLimitingInterface[key]
	// working says that this controller works, and not another one.
	working atomic.Bool
}

// key names one object to work on.
type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// New returns a controller, which does nothing before Run.
func New(kube dynamic.Interface, svc hutch.Service, opt Options) (*Controller, error) {
	c := &Controller{opt: opt, kube: kube, svc: svc, log: opt.Log, seen: map[schema.GroupVersionResource]cache.SharedIndexInformer{}}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](20*time.Millisecond, time.Minute))
	for _, r := range resources {
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.in(r, opt.Namespace).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.in(r, opt.Namespace).Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		changed := func(object any) { c.enqueue(r, object) }
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, DeleteFunc: changed,
			UpdateFunc: func(old, object any) {
				changed(object)
				c.enqueueOwner(r, old) // the owner can have changed: a claim takes from a pool
			},
		}); err != nil {
			return nil, err
		}
		c.seen[r] = informer
	}
	return c, nil
}

// in returns the client of one resource, in a namespace or in all.
func (c *Controller) in(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.kube.Resource(r)
	}
	return c.kube.Resource(r).Namespace(namespace)
}

// Run works until ctx is done. It calls started when it has read all objects.
func (c *Controller) Run(ctx context.Context, started func()) error {
	for _, r := range resources {
		if err := c.checkResource(ctx, r); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	defer c.queue.ShutDown()
	var synced []cache.InformerSynced
	for _, informer := range c.seen {
		group.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	started()
	c.lead(ctx)
	return nil
}

// checkResource returns an error that says what is missing. Without the check, an informer would wait for the resource.
func (c *Controller) checkResource(ctx context.Context, r schema.GroupVersionResource) error {
	_, err := c.in(r, c.opt.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return hutch.Errorf(hutch.Unavailable, "the cluster does not have %s: apply deploy/kubernetes/agent-sandbox/crds.yaml first", r.GroupResource()).Because(err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return hutch.Errorf(hutch.Denied, "the cluster does not let this controller list %s: apply deploy/kubernetes/agent-sandbox/controller.yaml, which has its roles, or use another kubeconfig: %v", r.GroupResource(), err)
	}
	return hutch.Errorf(hutch.Unavailable, "list %s: %v", r.GroupResource(), err)
}

// work reconciles objects until ctx is done.
func (c *Controller) work(ctx context.Context) {
	// The cache also has changes from the time when another controller worked, so all its objects are queued. The flag
	// is set first: later events are queued, and the list has the objects of earlier events.
	c.working.Store(true)
	for r, informer := range c.seen {
		for _, object := range informer.GetStore().List() {
			c.enqueue(r, object)
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.working.Store(false)
	// The queue is not closed, because this controller can work again. An item for each worker wakes it, so that it
	// ends.
	for i := range workers {
		c.queue.Add(key{name: fmt.Sprint(i)})
	}
}

// next reconciles one object, and reports whether there can be more.
func (c *Controller) next(ctx context.Context) bool {
	k, shut := c.queue.Get()
	if shut {
		return false
	}
	defer c.queue.Done(k)
	if ctx.Err() != nil || k.resource.Empty() {
		c.queue.Forget(k)
		return ctx.Err() == nil
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	after, err := c.reconcile(call, k)
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil && after > 0:
		c.queue.Forget(k)
		c.queue.AddAfter(k, after)
	case err == nil:
		c.queue.Forget(k)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err):
		c.queue.AddRateLimited(k) // the cache is older than the object
	default:
		c.log.Warn("an object waits for its next try", "kind", k.resource.Resource, "namespace", k.namespace, "name", k.name, "err", err)
		c.queue.AddRateLimited(k)
	}
	return true
}

func (c *Controller) reconcile(ctx context.Context, k key) (time.Duration, error) {
	switch k.resource {
	case sandboxes:
		return c.reconcileSandbox(ctx, k)
	case claims:
		return c.reconcileClaim(ctx, k)
	case warmPools:
		return 0, c.reconcileWarmPool(ctx, k)
	}
	return 0, nil // a template is read when an object that names it is reconciled
}

// add queues a key, if this controller works. In a controller that does not work, no code takes keys from the queue.
func (c *Controller) add(k key) {
	if c.working.Load() {
		c.queue.Add(k)
	}
}

// enqueue queues an object that has changed, and the objects that depend on it.
func (c *Controller) enqueue(r schema.GroupVersionResource, object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	namespace := u.GetNamespace()
	c.add(key{r, namespace, u.GetName()})
	switch r {
	case sandboxes:
		c.enqueueOwner(r, u)
	case templates:
		c.each(warmPools, namespace, func(pool *unstructured.Unstructured) {
			if name, _, _ := unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name"); name == u.GetName() {
				c.add(key{warmPools, namespace, pool.GetName()})
				c.enqueueClaims(namespace, pool.GetName())
			}
		})
	case warmPools:
		c.enqueueClaims(namespace, u.GetName())
		c.enqueueOwned(r, u)
	case claims:
		c.enqueueOwned(r, u)
	}
}

// enqueueOwned queues the Sandboxes of a claim or pool that is deleted or is being deleted.
func (c *Controller) enqueueOwned(r schema.GroupVersionResource, by *unstructured.Unstructured) {
	if by.GetDeletionTimestamp() == nil && c.reported(r, by.GetNamespace(), by.GetName()) != nil {
		return
	}
	c.each(sandboxes, by.GetNamespace(), func(s *unstructured.Unstructured) {
		if o := metav1.GetControllerOfNoCopy(s); o != nil && o.UID == by.GetUID() {
			c.add(key{sandboxes, by.GetNamespace(), s.GetName()})
		}
	})
}

// enqueueOwner queues the claim or pool that controls a Sandbox.
func (c *Controller) enqueueOwner(r schema.GroupVersionResource, object any) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || r != sandboxes {
		return
	}
	o := metav1.GetControllerOfNoCopy(u)
	switch {
	case o == nil:
	case o.Kind == claimKind:
		c.add(key{claims, u.GetNamespace(), o.Name})
	case o.Kind == poolKind:
		c.add(key{warmPools, u.GetNamespace(), o.Name})
	}
}

// enqueueClaims queues the claims on a pool that have no sandbox yet.
func (c *Controller) enqueueClaims(namespace, pool string) {
	c.each(claims, namespace, func(u *unstructured.Unstructured) {
		name, _, _ := unstructured.NestedString(u.Object, "spec", "warmPoolRef", "name")
		has, _, _ := unstructured.NestedString(u.Object, "status", "sandbox", "name")
		if name == pool && has == "" {
			c.add(key{claims, namespace, u.GetName()})
		}
	})
}

// each calls f for the objects of a namespace that the cluster reported.
func (c *Controller) each(r schema.GroupVersionResource, namespace string, f func(*unstructured.Unstructured)) {
	list, err := c.seen[r].GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		panic(err) // cannot happen: the index exists
	}
	for _, object := range list {
		f(object.(*unstructured.Unstructured))
	}
}

// reported returns an object as the cluster reported it last; nil if there is none.
func (c *Controller) reported(r schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	object, ok, err := c.seen[r].GetStore().GetByKey(namespace + "/" + name)
	if !ok || err != nil {
		return nil
	}
	return object.(*unstructured.Unstructured)
}

// get reads an object of the cluster as it is now; nil if there is none.
func (c *Controller) get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := c.in(r, namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return u, err
}

// delete deletes an object as it was read, and not a later object with the same name. It is idempotent.
func (c *Controller) delete(ctx context.Context, r schema.GroupVersionResource, m metav1.ObjectMeta, policy metav1.DeletionPropagation) error {
	// Only this version is deleted: a claim can have taken a Sandbox since it was read.
	only := metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}
	err := c.in(r, m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &only, PropagationPolicy: &policy})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or has changed, and its change queues it again
	}
	return err
}

// writeStatus replaces the status of an object, if it differs.
func (c *Controller) writeStatus(ctx context.Context, r schema.GroupVersionResource, u *unstructured.Unstructured, before, after any) error {
	status := encode(after)
	if fmt.Sprint(encode(before)) == fmt.Sprint(status) {
		return nil
	}
	u = u.DeepCopy()
	u.Object["status"] = status
	_, err := c.in(r, u.GetNamespace()).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	return err
}

// reason returns what a condition says about an error of the server, and whether another try can help.
func reason(err error) (word string, final bool) {
	switch hutch.KindOf(err) {
	case hutch.Invalid, hutch.Unsupported:
		return invalidConfiguration, true
	case hutch.Denied, hutch.Internal, hutch.NotFound:
		return reconcilerError, false
	}
	return dependenciesNotReady, false
}
