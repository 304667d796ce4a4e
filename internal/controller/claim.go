package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// reconcileClaim gives a claim its Sandbox, and reports the readiness of the Sandbox as the claim's.
//
// The claim's annotation names the Sandbox before anything else changes. So a claim never takes two Sandboxes, and no
// step has to be undone after a controller has died: the next controller finds the name, and takes or makes that
// Sandbox.
func (c *Controller) reconcileClaim(ctx context.Context, k key) (time.Duration, error) {
	u, err := c.get(ctx, claims, k.namespace, k.name) // not from the cache: what this claim has must be known for sure
	if err != nil || u == nil || u.GetDeletionTimestamp() != nil {
		return 0, err // its Sandbox follows: see orphan
	}
	cl, err := decode[claim](u)
	if err != nil {
		return 0, err
	}
	status := cl.Status
	status.Conditions = slices.Clone(status.Conditions)
	left := time.Duration(0)
	if end := cl.Spec.Lifecycle.ShutdownTime; end != nil {
		left = time.Until(end.Time)
	}
	if left < 0 {
		if over, err := c.endClaim(ctx, cl); err != nil || over {
			return 0, err
		}
		status.Sandbox = nameRef{}
		setCondition(&status.Conditions, cl.Generation, ready, false, claimExpired, "its shutdownTime is over")
		return 0, c.writeStatus(ctx, claims, u, cl.Status, status)
	}
	s, no, err := c.bind(ctx, cl)
	switch {
	case err != nil:
		return 0, err
	case no != nil:
		status.Sandbox = nameRef{}
		setCondition(&status.Conditions, cl.Generation, ready, false, no.reason, no.message)
	default:
		status.Sandbox.Name = s.Name
		is := metav1.Condition{Status: metav1.ConditionFalse, Reason: dependenciesNotReady, Message: "its Sandbox is being made"}
		if found := meta.FindStatusCondition(s.Status.Conditions, ready); found != nil {
			is = *found
		}
		setCondition(&status.Conditions, cl.Generation, ready, is.Status == metav1.ConditionTrue, is.Reason, is.Message)
	}
	if cl.Annotations[assignedName] == "" && s != nil {
		u, err = c.get(ctx, claims, k.namespace, k.name) // with the annotation
		if err != nil || u == nil {
			return 0, err
		}
	}
	return left, c.writeStatus(ctx, claims, u, cl.Status, status)
}

// endClaim does what the claim asks for when its time is up, and reports whether that ends the claim itself.
func (c *Controller) endClaim(ctx context.Context, cl *claim) (bool, error) {
	switch cl.Spec.Lifecycle.ShutdownPolicy {
	case "Delete":
		return true, c.delete(ctx, claims, cl.ObjectMeta, metav1.DeletePropagationBackground)
	case "DeleteForeground":
		return true, c.delete(ctx, claims, cl.ObjectMeta, metav1.DeletePropagationForeground)
	}
	name := cl.Annotations[assignedName]
	if name == "" {
		return false, nil
	}
	u, err := c.get(ctx, sandboxes, cl.Namespace, name)
	if err != nil || u == nil {
		return false, err
	}
	s, err := decode[sandbox](u)
	if err == nil && ownedBy(s.ObjectMeta, claimKind, cl.ObjectMeta) {
		err = c.delete(ctx, sandboxes, s.ObjectMeta, metav1.DeletePropagationBackground)
	}
	return false, err
}

// refusal is why a claim gets no sandbox, until something changes.
type refusal struct{ reason, message string }

// bind returns the claim's Sandbox.
func (c *Controller) bind(ctx context.Context, cl *claim) (*sandbox, *refusal, error) {
	assigned := cl.Annotations[assignedName]
	if assigned != "" {
		u, err := c.get(ctx, sandboxes, cl.Namespace, assigned)
		if err != nil {
			return nil, nil, err
		}
		if u != nil {
			s, err := decode[sandbox](u)
			if err != nil || ownedBy(s.ObjectMeta, claimKind, cl.ObjectMeta) {
				return s, nil, err
			}
		}
	}
	pool, t, no, err := c.sources(ctx, cl)
	if no != nil || err != nil {
		return nil, no, err
	}
	made, no, err := newSandbox(cl.Namespace, t, cl)
	if no != nil || err != nil {
		return nil, no, err
	}
	if assigned == "" {
		if assigned, err = c.assign(ctx, cl, pool); err != nil {
			return nil, nil, err
		}
	}
	if assigned != cl.Name {
		s, err := c.adopt(ctx, cl, pool, assigned)
		if s != nil || err != nil {
			return s, nil, err
		}
		// The Sandbox went to another claim or was deleted: choose again.
		return nil, nil, errors.Join(c.annotate(ctx, cl, nil), apierrors.NewConflict(sandboxes.GroupResource(), assigned, fmt.Errorf("another claim has it")))
	}
	return c.makeOwn(ctx, cl, made)
}

// sources reads the pool of a claim and the pool's template.
func (c *Controller) sources(ctx context.Context, cl *claim) (*warmPool, *template, *refusal, error) {
	name := cl.Spec.WarmPoolRef.Name
	u, err := c.get(ctx, warmPools, cl.Namespace, name)
	if err != nil {
		return nil, nil, nil, err
	}
	if u == nil {
		return nil, nil, &refusal{warmPoolNotFound, fmt.Sprintf("there is no SandboxWarmPool %q in the namespace %q", name, cl.Namespace)}, nil
	}
	pool, err := decode[warmPool](u)
	if err != nil {
		return nil, nil, nil, err
	}
	name = pool.Spec.TemplateRef.Name
	if u, err = c.get(ctx, templates, cl.Namespace, name); err != nil {
		return nil, nil, nil, err
	}
	if u == nil {
		return nil, nil, &refusal{templateNotFound, fmt.Sprintf("the SandboxWarmPool %q names the SandboxTemplate %q, which is not in the namespace %q", pool.Name, name, cl.Namespace)}, nil
	}
	t, err := decode[template](u)
	return pool, t, nil, err
}

// assign chooses a Sandbox for a claim, and writes the choice down: a ready Sandbox of the pool or, if none of them has
// what the claim wants, a new Sandbox with the claim's name.
func (c *Controller) assign(ctx context.Context, cl *claim, pool *warmPool) (string, error) {
	name := cl.Name
	if len(cl.Spec.Env) == 0 {
		if free := c.free(cl.Namespace, pool); len(free) > 0 {
			name = free[rand.N(len(free))] // claims that come together choose different Sandboxes
		}
	}
	return name, c.annotate(ctx, cl, name)
}

// free returns the names of the Sandboxes of a pool that are ready and without a claim.
func (c *Controller) free(namespace string, pool *warmPool) (names []string) {
	c.each(sandboxes, namespace, func(u *unstructured.Unstructured) {
		s, err := decode[sandbox](u)
		if err == nil && ownedBy(s.ObjectMeta, poolKind, pool.ObjectMeta) && s.DeletionTimestamp == nil && !s.suspended() && isReady(s.Status.Conditions) {
			names = append(names, s.Name)
		}
	})
	return names
}

// annotate records the name of a claim's Sandbox in the claim; nil removes the name.
func (c *Controller) annotate(ctx context.Context, cl *claim, name any) error {
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": cl.ResourceVersion, "annotations": map[string]any{assignedName: name}}})
	if err != nil {
		return err
	}
	_, err = c.in(claims, cl.Namespace).Patch(ctx, cl.Name, types.MergePatchType, b, metav1.PatchOptions{})
	return err
}

// adopt makes a Sandbox of the pool the claim's. It returns nil if the pool no longer has it. If two claims want the
// Sandbox, one of them gets a conflict. If two controllers act for one claim, both get the Sandbox.
func (c *Controller) adopt(ctx context.Context, cl *claim, pool *warmPool, name string) (*sandbox, error) {
	for {
		u, err := c.get(ctx, sandboxes, cl.Namespace, name)
		if err != nil || u == nil {
			return nil, err
		}
		s, err := decode[sandbox](u)
		switch {
		case err != nil || s.DeletionTimestamp != nil:
			return nil, err
		case ownedBy(s.ObjectMeta, claimKind, cl.ObjectMeta):
			return s, nil
		case !ownedBy(s.ObjectMeta, poolKind, pool.ObjectMeta):
			return nil, nil
		}
		change := map[string]any{"metadata": map[string]any{
			"resourceVersion": s.ResourceVersion,
			"ownerReferences": []any{controlledBy(claimKind, cl.ObjectMeta)},
			"labels":          map[string]any{poolLabel: nil},
		}}
		if add := encode(cl.Spec.AdditionalPodMetadata); len(add) > 0 {
			change["spec"] = map[string]any{"podTemplate": map[string]any{"metadata": add}}
		}
		if err = c.patch(ctx, s.ObjectMeta, change); !apierrors.IsConflict(err) {
			return s, err
		}
	}
}

// makeOwn makes a Sandbox for one claim, under the claim's name.
func (c *Controller) makeOwn(ctx context.Context, cl *claim, made *unstructured.Unstructured) (*sandbox, *refusal, error) {
	made.SetName(cl.Name)
	made.SetLabels(withLabel(made.GetLabels(), launchType, "cold"))
	made.Object["metadata"].(map[string]any)["ownerReferences"] = []any{controlledBy(claimKind, cl.ObjectMeta)}
	u, err := c.in(sandboxes, cl.Namespace).Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if u, err := c.get(ctx, sandboxes, cl.Namespace, cl.Name); err != nil || u != nil && u.GetDeletionTimestamp() == nil && isOf(u, cl) {
			return nil, nil, errors.Join(err, apierrors.NewConflict(sandboxes.GroupResource(), cl.Name, fmt.Errorf("it was just made")))
		}
		return nil, &refusal{dependenciesNotReady, fmt.Sprintf("there is a Sandbox %q that is not this claim's: delete it, or claim under another name", cl.Name)}, nil
	}
	if apierrors.IsInvalid(err) {
		return nil, &refusal{invalidConfiguration, err.Error()}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	s, err := decode[sandbox](u)
	return s, nil, err
}

func isOf(u *unstructured.Unstructured, cl *claim) bool {
	o := metav1.GetControllerOfNoCopy(u)
	return o != nil && o.UID == cl.UID
}

// newSandbox returns a Sandbox of a template, for a claim or, if that is nil, for a pool.
func newSandbox(namespace string, t *template, cl *claim) (*unstructured.Unstructured, *refusal, error) {
	network, err := templateNetwork(t.Spec)
	if err != nil {
		return nil, &refusal{invalidConfiguration, fmt.Sprintf("the SandboxTemplate %q: %v", t.Name, err)}, nil
	}
	spec := encode(t.Spec.blueprint)
	if cl != nil {
		if no := addToClaim(spec, t, cl); no != nil {
			return nil, no, nil
		}
	}
	rules, err := json.Marshal(network)
	if err != nil {
		return nil, nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{
			"namespace":   namespace,
			"labels":      map[string]any{templateHash: t.hash()},
			"annotations": map[string]any{templateName: t.Name, networkRules: string(rules)},
		},
		"spec": spec,
	}}
	u.SetGroupVersionKind(sandboxes.GroupVersion().WithKind("Sandbox"))
	return u, nil, nil
}

// hash returns a hash of everything in a template that determines its sandboxes.
func (t *template) hash() string {
	return shortHash(t.Spec.blueprint, t.Spec.NetworkPolicy, t.Spec.NetworkPolicyManagement)
}

// addToClaim adds the extra settings of a claim to a blueprint, as far as the claim's template allows that.
func addToClaim(spec map[string]any, t *template, cl *claim) *refusal {
	switch {
	case len(cl.Spec.VolumeClaimTemplates) > 0:
		return &refusal{volumeClaimsError, "Hutch has nothing that corresponds to volumeClaimTemplates: leave them out"}
	case cl.Spec.Lifecycle.TTLSecondsAfterFinished != nil:
		return &refusal{invalidConfiguration, "Hutch has nothing that corresponds to ttlSecondsAfterFinished, because a sandbox outlives its program: use shutdownTime"}
	}
	for _, keys := range []map[string]string{cl.Spec.AdditionalPodMetadata.Labels, cl.Spec.AdditionalPodMetadata.Annotations} {
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			if reserved(name) {
				return &refusal{invalidMetadata, fmt.Sprintf("additionalPodMetadata has %q, whose domain is the cluster's own: use another name", name)}
			}
		}
	}
	pod, _ := spec["podTemplate"].(map[string]any)
	add, _ := pod["metadata"].(map[string]any)
	if add == nil {
		add = map[string]any{}
	}
	for field, values := range encode(cl.Spec.AdditionalPodMetadata) {
		into, _ := add[field].(map[string]any)
		if into == nil {
			into = map[string]any{}
		}
		maps.Copy(into, values.(map[string]any))
		add[field] = into
	}
	pod["metadata"] = add
	return addEnv(pod, t, cl)
}

// reserved reports whether a label or annotation has a meaning to the cluster.
func reserved(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	if !ok || name == "cluster-autoscaler.kubernetes.io/safe-to-evict" {
		return false
	}
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return strings.HasSuffix(domain, "agents.x-k8s.io")
}

// addEnv adds a claim's environment variables to the container.
func addEnv(pod map[string]any, t *template, cl *claim) *refusal {
	if len(cl.Spec.Env) == 0 {
		return nil
	}
	policy := t.Spec.EnvVarsInjectionPolicy
	if policy != "Allowed" && policy != "Overrides" {
		return &refusal{envRejected, fmt.Sprintf("the SandboxTemplate %q does not allow env in claims: its envVarsInjectionPolicy is not Allowed or Overrides", t.Name)}
	}
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) != 1 {
		return nil // it is refused when the sandbox is made
	}
	container, _ := containers[0].(map[string]any)
	if container == nil {
		return nil
	}
	list, _ := container["env"].([]any)
	for _, v := range cl.Spec.Env {
		if v.ContainerName != "" && v.ContainerName != container["name"] {
			return &refusal{envRejected, fmt.Sprintf("env names the container %q, which the SandboxTemplate %q does not have", v.ContainerName, t.Name)}
		}
		same := func(old any) bool { fields, _ := old.(map[string]any); return fields["name"] == v.Name }
		if slices.ContainsFunc(list, same) && policy != "Overrides" {
			return &refusal{envRejected, fmt.Sprintf("env sets %q, which the SandboxTemplate %q sets: its envVarsInjectionPolicy is not Overrides", v.Name, t.Name)}
		}
		list = append(slices.DeleteFunc(list, same), map[string]any{"name": v.Name, "value": v.Value})
	}
	container["env"] = list
	return nil
}

func withLabel(labels map[string]string, name, value string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[name] = value
	return labels
}
