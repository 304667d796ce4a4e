package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxCreates bounds how many Sandboxes one step of a pool makes; the next step makes more.
const maxCreates = 50

// reconcileWarmPool keeps as many Sandboxes ready as the pool says. It counts what the cluster has now, not what the
// cluster last reported: with an old count the pool would make too many.
func (c *Controller) reconcileWarmPool(ctx context.Context, k key) error {
	u := c.reported(warmPools, k.namespace, k.name)
	if u == nil || u.GetDeletionTimestamp() != nil {
		return nil // its Sandboxes follow: see orphan
	}
	pool, err := decode[warmPool](u)
	if err != nil {
		return err
	}
	list, err := c.poolSandboxes(ctx, pool)
	if err != nil {
		return err
	}
	want := 1
	if pool.Spec.Replicas != nil {
		want = int(max(*pool.Spec.Replicas, 0))
	}
	list, err = c.resize(ctx, pool, list, want)
	status := warmPoolStatus{Replicas: int64(len(list)), Selector: poolLabel + "=" + shortHash(pool.Name), ObservedGeneration: pool.Generation}
	for _, s := range list {
		if isReady(s.Status.Conditions) {
			status.ReadyReplicas++
		}
	}
	return errors.Join(err, c.writeStatus(ctx, warmPools, u, pool.Status, status))
}

// poolSandboxes returns the Sandboxes of a pool that no claim has, the newest last.
func (c *Controller) poolSandboxes(ctx context.Context, pool *warmPool) (list []*sandbox, err error) {
	found, err := c.in(sandboxes, pool.Namespace).List(ctx, metav1.ListOptions{LabelSelector: poolLabel + "=" + shortHash(pool.Name)})
	if err != nil {
		return nil, err
	}
	for i := range found.Items {
		s, err := decode[sandbox](&found.Items[i])
		if err != nil {
			return nil, err
		}
		if ownedBy(s.ObjectMeta, poolKind, pool.ObjectMeta) && s.DeletionTimestamp == nil {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *sandbox) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// resize makes and deletes Sandboxes until there are as many as wanted, and returns those that stay.
func (c *Controller) resize(ctx context.Context, pool *warmPool, list []*sandbox, want int) ([]*sandbox, error) {
	u, err := c.get(ctx, templates, pool.Namespace, pool.Spec.TemplateRef.Name)
	if err != nil {
		return list, err
	}
	var t *template
	if u != nil {
		if t, err = decode[template](u); err != nil {
			return list, err
		}
	}
	var kept, extra []*sandbox
	for _, s := range list {
		// When a template no longer exists, its sandboxes are kept.
		stale := t != nil && pool.Spec.UpdateStrategy.Type == "Recreate" && s.Labels[templateHash] != t.hash()
		if stale || len(kept) == want {
			extra = append(extra, s)
		} else {
			kept = append(kept, s)
		}
	}
	for _, s := range extra {
		if err := c.delete(ctx, sandboxes, s.ObjectMeta, metav1.DeletePropagationBackground); err != nil {
			return kept, err
		}
	}
	if t == nil {
		return kept, nil // its change queues the pool again
	}
	for range min(want-len(kept), maxCreates) {
		s, err := c.grow(ctx, pool, t)
		if err != nil || s == nil {
			return kept, err
		}
		kept = append(kept, s)
	}
	return kept, nil
}

// grow creates one Sandbox for a pool. If the template cannot be mapped, it creates none and returns no error, because
// the claims of the template report the fault.
func (c *Controller) grow(ctx context.Context, pool *warmPool, t *template) (*sandbox, error) {
	made, no, err := newSandbox(pool.Namespace, t, nil)
	if err != nil || no != nil {
		return nil, err
	}
	const longest = 200 // of a name, before a hyphen and what the cluster adds
	made.SetGenerateName(pool.Name[:min(len(pool.Name), longest)] + "-")
	made.SetLabels(withLabel(withLabel(made.GetLabels(), launchType, "warm"), poolLabel, shortHash(pool.Name)))
	made.Object["metadata"].(map[string]any)["ownerReferences"] = []any{controlledBy(poolKind, pool.ObjectMeta)}
	u, err := c.in(sandboxes, pool.Namespace).Create(ctx, made, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return decode[sandbox](u)
}
