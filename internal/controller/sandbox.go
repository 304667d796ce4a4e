package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hutch"
)

// reconcileSandbox brings one sandbox of the server into the state that its object asks for.
func (c *Controller) reconcileSandbox(ctx context.Context, k key) (time.Duration, error) {
	u := c.reported(sandboxes, k.namespace, k.name)
	if u == nil {
		return 0, nil
	}
	s, err := decode[sandbox](u)
	if err != nil {
		return 0, err
	}
	if s.DeletionTimestamp != nil {
		return 0, c.endSandbox(ctx, s)
	}
	if orphan, err := c.orphan(ctx, s.ObjectMeta); err != nil || orphan {
		if err == nil {
			err = c.delete(ctx, sandboxes, s.ObjectMeta, metav1.DeletePropagationBackground)
		}
		return 0, err
	}
	if !hasFinalizer(s.ObjectMeta) { // before there is anything to end; the change queues the object again
		return 0, c.setFinalizers(ctx, s, append(slices.Clone(s.Finalizers), finalizer))
	}
	status := s.Status
	status.Conditions = slices.Clone(status.Conditions)
	after, err := c.drive(ctx, s, &status)
	return after, errors.Join(err, c.writeStatus(ctx, sandboxes, u, s.Status, status))
}

// endSandbox destroys the sandbox of an object that is being deleted, and then lets the cluster delete the object.
func (c *Controller) endSandbox(ctx context.Context, s *sandbox) error {
	if !hasFinalizer(s.ObjectMeta) {
		return nil
	}
	if err := c.destroy(ctx, s); err != nil {
		return err
	}
	return c.setFinalizers(ctx, s, slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == finalizer }))
}

func (c *Controller) destroy(ctx context.Context, s *sandbox) error {
	if _, err := c.svc.Destroy(ctx, s.id(), true); err != nil {
		return fmt.Errorf("destroy the sandbox %s: %w", s.id(), err)
	}
	return nil
}

func (s *sandbox) id() string { return sandboxID(s.Name, string(s.UID)) }

func (c *Controller) setFinalizers(ctx context.Context, s *sandbox, list []string) error {
	return c.patch(ctx, s.ObjectMeta, map[string]any{"metadata": map[string]any{"finalizers": list, "resourceVersion": s.ResourceVersion}})
}

// patch merges a change into a Sandbox.
func (c *Controller) patch(ctx context.Context, m metav1.ObjectMeta, change map[string]any) error {
	b, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = c.in(sandboxes, m.Namespace).Patch(ctx, m.Name, types.MergePatchType, b, metav1.PatchOptions{})
	return err
}

// orphan reports whether the claim or pool that controls an object is deleted, or is being deleted. The cluster's own
// garbage collector deletes such objects, too.
func (c *Controller) orphan(ctx context.Context, m metav1.ObjectMeta) (bool, error) {
	o := owner(m)
	if o == nil {
		return false, nil
	}
	r, ok := claims, true
	switch {
	case o.APIVersion != claims.GroupVersion().String():
		ok = false
	case o.Kind == poolKind:
		r = warmPools
	default:
		ok = o.Kind == claimKind
	}
	if !ok {
		return false, nil // it has another owner, which deletes it
	}
	by := c.reported(r, m.Namespace, o.Name)
	if by == nil || by.GetUID() != o.UID {
		var err error
		if by, err = c.get(ctx, r, m.Namespace, o.Name); err != nil {
			return false, err
		}
	}
	return by == nil || by.GetUID() != o.UID || by.GetDeletionTimestamp() != nil, nil
}

// drive takes a sandbox to the state that its object asks for, and sets the conditions that say how far it is.
func (c *Controller) drive(ctx context.Context, s *sandbox, status *sandboxStatus) (time.Duration, error) {
	set := func(kind string, is bool, reason, message string) {
		setCondition(&status.Conditions, s.Generation, kind, is, reason, message)
	}
	left := time.Duration(0)
	if end := s.Spec.ShutdownTime; end != nil {
		if left = time.Until(end.Time); left <= 0 {
			return 0, c.expire(ctx, s, set)
		}
	}
	t := translate(s.Spec.blueprint)
	network, err := readNetwork(s.Annotations[networkRules])
	if err = errors.Join(t.err(), err); err != nil {
		set(ready, false, invalidConfiguration, err.Error())
		return left, nil
	}
	t.create.Network = network
	if s.suspended() {
		err = c.suspend(ctx, s, set)
	} else {
		err = c.start(ctx, s, t, set)
	}
	return left, err
}

type setter func(kind string, is bool, reason, message string)

// expire ends the sandbox of an object whose time is up.
func (c *Controller) expire(ctx context.Context, s *sandbox, set setter) error {
	if err := c.destroy(ctx, s); err != nil {
		return err
	}
	set(ready, false, sandboxExpired, "its shutdownTime is over")
	if s.Spec.ShutdownPolicy == "Delete" {
		return c.delete(ctx, sandboxes, s.ObjectMeta, metav1.DeletePropagationBackground)
	}
	return nil
}

// start makes the sandbox and starts its program. If the sandbox is ready already, its program is left as it is.
func (c *Controller) start(ctx context.Context, s *sandbox, t translation, set setter) error {
	sb, err := c.ensure(ctx, s, t.create)
	if err == nil && !isReady(s.Status.Conditions) {
		err = c.startProgram(ctx, sb.ID, t.program, meta.IsStatusConditionTrue(s.Status.Conditions, suspended))
	}
	switch {
	case err != nil:
		word, final := reason(err)
		set(ready, false, word, err.Error())
		if final {
			return nil // a change of the object queues it again, and so does the next comparison
		}
		return fmt.Errorf("start the sandbox %s: %w", s.id(), err)
	case sb.Status == hutch.Failed:
		set(ready, false, podFailed, fmt.Sprintf("the sandbox %s of the server: %s", sb.ID, sb.Reason))
	default:
		if meta.FindStatusCondition(s.Status.Conditions, suspended) != nil {
			set(suspended, false, notSuspended, "it runs, or sleeps until its next use")
		}
		set(ready, true, dependenciesReady, "it is the sandbox "+sb.ID+" of the server")
	}
	return nil
}

// unconfirmedTime is the lifetime of a new sandbox until it is confirmed. It is longer than the step that confirms it.
const unconfirmedTime = 2 * callTime

// ensure returns the object's sandbox, and makes it if there is none.
func (c *Controller) ensure(ctx context.Context, s *sandbox, req hutch.CreateRequest) (hutch.Sandbox, error) {
	sb, err := c.svc.Sandbox(ctx, s.id())
	if hutch.KindOf(err) == hutch.NotFound {
		if err := c.checkCurrent(ctx, s); err != nil {
			return sb, err
		}
		req.ID = s.id()
		req.Labels = s.labels()
		req.Timeout = hutch.InSeconds(unconfirmedTime)
		sb, err = c.svc.Create(ctx, req)
	}
	if err != nil {
		return sb, err
	}
	for name, value := range s.labels() {
		if sb.Labels[name] != value {
			return sb, hutch.Errorf(hutch.Conflict, "the server has a sandbox %s that was not made for this object: destroy or rename it", sb.ID)
		}
	}
	if sb.ExpiresAt != nil {
		return c.confirm(ctx, s)
	}
	return sb, nil
}

// confirm removes the lifetime limit of a new sandbox, after it has found the object in the cluster once more. Another
// controller can have ended the object when there was nothing to destroy yet. Then the new sandbox has no object, and
// ends by itself even if this controller is killed before it can destroy the sandbox.
func (c *Controller) confirm(ctx context.Context, s *sandbox) (hutch.Sandbox, error) {
	err := c.checkCurrent(ctx, s)
	if hutch.KindOf(err) == hutch.Unavailable {
		err = errors.Join(err, c.destroy(ctx, s))
	}
	if err != nil {
		return hutch.Sandbox{}, err
	}
	return c.svc.Update(ctx, s.id(), hutch.UpdateRequest{Timeout: new(hutch.Seconds)})
}

// checkCurrent makes sure that the cluster still has the object, before anything is made for it: what was reported can be old, and nothing
// would end the sandbox of an object that is gone.
func (c *Controller) checkCurrent(ctx context.Context, s *sandbox) error {
	u, err := c.get(ctx, sandboxes, s.Namespace, s.Name)
	if err != nil {
		return err
	}
	if u == nil || u.GetUID() != s.UID || u.GetDeletionTimestamp() != nil || !slices.Contains(u.GetFinalizers(), finalizer) {
		return hutch.Errorf(hutch.Unavailable, "the object %s/%s is being deleted", s.Namespace, s.Name)
	}
	return nil
}

// labels returns labels that show on the server for which object a sandbox is.
func (s *sandbox) labels() map[string]string {
	return map[string]string{"kubernetes/namespace": s.Namespace, "kubernetes/sandbox": s.Name, "kubernetes/uid": string(s.UID)}
}

// mainProcess is the name of the background process that runs the container's program.
const mainProcess = "main"

// startProgram starts the container's program, unless it runs. A program that has ended starts again only after its sandbox was
// suspended.
func (c *Controller) startProgram(ctx context.Context, id string, p program, resumed bool) error {
	if p.dir != "" { // a container's runtime makes the folder, too
		if err := c.svc.Mkdir(ctx, id, p.dir, true); err != nil {
			return err
		}
	}
	if len(p.command) == 0 && !p.entrypoint {
		return nil
	}
	list, err := c.svc.Processes(ctx, id)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(p hutch.Process) bool { return p.Name == mainProcess && (p.Status.Live() || !resumed) }) {
		return nil
	}
	req := hutch.ProcessRequest{Name: mainProcess, Dir: p.dir, Entrypoint: p.entrypoint, RestartPolicy: p.restart}
	if !p.entrypoint {
		req.Command = hutch.CommandLine(p.command...)
	}
	_, err = c.svc.StartProcess(ctx, id, req)
	if p.entrypoint && hutch.KindOf(err) == hutch.Invalid {
		return nil // the image names no program
	}
	return err
}

// suspend puts the sandbox to sleep, with its memory where the runtime can keep it.
func (c *Controller) suspend(ctx context.Context, s *sandbox, set setter) error {
	set(ready, false, sandboxSuspended, "operatingMode is Suspended")
	sb, err := c.svc.Sandbox(ctx, s.id())
	if err == nil && !sb.Status.Sleeps() {
		sb, err = c.svc.Hibernate(ctx, s.id(), hutch.HibernateRequest{})
		// A conflict about the sandbox, for example that it is in use, is tried again. The other conflict is that
		// programs run, and the runtime cannot keep their memory. Then the programs end, as they would with a pod.
		if e, ok := errors.AsType[*hutch.Error](err); ok && e.Kind == hutch.Conflict && e.Data[string(hutch.AboutSandbox)] == nil {
			sb, err = c.svc.Hibernate(ctx, s.id(), hutch.HibernateRequest{FilesOnly: true})
		}
	}
	switch {
	case hutch.KindOf(err) == hutch.NotFound && err != nil: // the sandbox was not made yet
		set(suspended, true, podTerminated, "there is no sandbox on the server yet")
	case err != nil:
		set(suspended, false, podTerminating, err.Error())
		return fmt.Errorf("put the sandbox %s to sleep: %w", s.id(), err)
	default:
		set(suspended, true, podTerminated, "the sandbox "+sb.ID+" of the server is "+string(sb.Status))
	}
	return nil
}
