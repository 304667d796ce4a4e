package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"hutch/internal/delay"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Lease names the object by which one of several controllers is chosen to work.
//
// This is the protocol of client-go's package leaderelection: a holder renews the Lease. Another controller takes the
// Lease when it has not seen a change for the Lease's duration, by its own clock. The package itself is not used,
// because it brings all typed clients of Kubernetes, 370 packages, into the program. When two controllers work at a
// time nevertheless, for example because a machine was paused, nothing breaks: each change of an object names the
// version that it changes, and each call of the server is idempotent.
type Lease struct {
	Namespace, Name string
	Identity        string // the name of this controller
}

const (
	leaseTime = 15 * time.Second // without renewal, before another controller takes the Lease
	renewTime = 10 * time.Second // without success, before the holder stops
	retryTime = 2 * time.Second
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

type leaseSpec struct {
	HolderIdentity       string            `json:"holderIdentity"`
	LeaseDurationSeconds int               `json:"leaseDurationSeconds"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime,omitempty"`
	RenewTime            *metav1.MicroTime `json:"renewTime,omitempty"`
	LeaseTransitions     int               `json:"leaseTransitions"`
}

// election is what one candidate knows.
type election struct {
	c       *Controller
	version string    // the version of the Lease when it last changed
	changed time.Time // when this candidate saw that change
}

// lead works whenever this controller holds the Lease, until ctx is done.
func (c *Controller) lead(ctx context.Context) {
	if c.opt.Lease.Name == "" {
		c.work(ctx)
		return
	}
	e := &election{c: c}
	for ctx.Err() == nil {
		begun := time.Now()
		held, err := e.try(ctx)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the lease cannot be taken", "err", err)
		}
		if held {
			c.log.Info("this controller works now", "identity", c.opt.Lease.Identity)
			e.hold(ctx, begun)
		}
		delay.Wait(ctx, retryTime)
	}
	e.release()
}

// hold does the work of the controller while it renews the Lease, which was last renewed at the time last. It stops
// renewTime after its last renewal, however long a try takes.
func (e *election) hold(ctx context.Context, last time.Time) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.c.work(ctx)
	}()
	for ctx.Err() == nil && time.Since(last) < renewTime {
		begun := time.Now()
		limit, stop := context.WithDeadline(ctx, last.Add(renewTime))
		held, err := e.try(limit)
		stop()
		if err == nil && !held {
			break // another controller took the Lease
		}
		if err == nil {
			last = begun
		}
		delay.Wait(ctx, min(retryTime, time.Until(last.Add(renewTime))))
	}
	if ctx.Err() == nil {
		e.c.log.Warn("this controller lost its lease, and waits", "identity", e.c.opt.Lease.Identity)
	}
	cancel()
	<-done
}

// try takes or renews the Lease, and reports whether this controller holds it.
func (e *election) try(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTime/2)
	defer cancel()
	opt, now := e.c.opt.Lease, metav1.NowMicro()
	u, err := e.c.get(ctx, leases, opt.Namespace, opt.Name)
	if err != nil {
		return false, err
	}
	spec := leaseSpec{HolderIdentity: opt.Identity, LeaseDurationSeconds: int(leaseTime / time.Second), AcquireTime: &now, RenewTime: &now}
	if u == nil {
		u = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": opt.Name, "namespace": opt.Namespace}, "spec": encode(spec)}}
		u.SetGroupVersionKind(leases.GroupVersion().WithKind("Lease"))
		u, err = e.c.in(leases, opt.Namespace).Create(ctx, u, metav1.CreateOptions{})
		return e.wrote(u, err)
	}
	var old leaseSpec
	if err := decodeField(u, "spec", &old); err != nil {
		return false, err
	}
	if u.GetResourceVersion() != e.version {
		e.version, e.changed = u.GetResourceVersion(), time.Now()
	}
	mine := old.HolderIdentity == opt.Identity
	length := time.Duration(old.LeaseDurationSeconds) * time.Second
	if !mine && old.HolderIdentity != "" && time.Since(e.changed) < length {
		return false, nil
	}
	spec.LeaseTransitions = old.LeaseTransitions
	if mine {
		spec.AcquireTime = old.AcquireTime
	} else {
		spec.LeaseTransitions++
	}
	u.Object["spec"] = encode(spec)
	u, err = e.c.in(leases, opt.Namespace).Update(ctx, u, metav1.UpdateOptions{})
	return e.wrote(u, err)
}

// wrote reads the outcome of a write: a conflict means that another controller was first.
func (e *election) wrote(u *unstructured.Unstructured, err error) (bool, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e.version, e.changed = u.GetResourceVersion(), time.Now()
	return true, nil
}

// release gives the Lease up, so that another controller need not wait.
func (e *election) release() {
	ctx, cancel := context.WithTimeout(context.Background(), retryTime)
	defer cancel()
	opt := e.c.opt.Lease
	u, err := e.c.get(ctx, leases, opt.Namespace, opt.Name)
	if err != nil || u == nil {
		return
	}
	var spec leaseSpec
	if decodeField(u, "spec", &spec) != nil || spec.HolderIdentity != opt.Identity {
		return
	}
	spec.HolderIdentity, spec.LeaseDurationSeconds = "", 1
	u.Object["spec"] = encode(spec)
	e.c.in(leases, opt.Namespace).Update(ctx, u, metav1.UpdateOptions{}) // if this fails, the others wait until the Lease expires
}

// decodeField reads one field of an object.
func decodeField(u *unstructured.Unstructured, name string, into any) error {
	b, err := json.Marshal(u.Object[name])
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("read the %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
