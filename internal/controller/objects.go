package controller

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources of the API, in the version that clients use.
var (
	sandboxes = schema.GroupVersionResource{Group: "agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxes"}
	templates = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxtemplates"}
	claims    = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxclaims"}
	warmPools = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxwarmpools"}

	resources = []schema.GroupVersionResource{sandboxes, templates, claims, warmPools}
)

const (
	claimKind = "SandboxClaim"
	poolKind  = "SandboxWarmPool"
)

// Names in the metadata of objects. The names with hutch in them are this controller's, the others are the API's.
const (
	finalizer = "agents.x-k8s.io/hutch-sandbox"

	assignedName = "agents.x-k8s.io/sandbox-name"          // annotation of a claim: the Sandbox that it has or takes
	templateName = "agents.x-k8s.io/sandbox-template-ref"  // annotation of a Sandbox
	templateHash = "agents.x-k8s.io/sandbox-template-hash" // label of a Sandbox
	launchType   = "agents.x-k8s.io/launch-type"           // label of a Sandbox: cold or warm
	poolLabel    = "agents.x-k8s.io/warm-pool-sandbox"     // label of a Sandbox that no claim has yet: the hash of its pool's name

	// networkRules is an annotation of a Sandbox: a [hutch.Network] in JSON. A claim sets it as the template says.
	networkRules = "agents.x-k8s.io/hutch-network"
)

// Reasons of conditions. Clients stop waiting at some of them.
const (
	ready     = "Ready"
	suspended = "Suspended"

	dependenciesReady    = "DependenciesReady"
	dependenciesNotReady = "DependenciesNotReady"
	sandboxSuspended     = "SandboxSuspended"
	sandboxExpired       = "SandboxExpired"
	invalidConfiguration = "InvalidConfiguration"
	reconcilerError      = "ReconcilerError"
	podFailed            = "PodFailed"
	podTerminated        = "PodTerminated"
	podTerminating       = "PodTerminating"
	notSuspended         = "NotSuspended"

	warmPoolNotFound  = "WarmPoolNotFound"
	templateNotFound  = "TemplateNotFound"
	claimExpired      = "ClaimExpired"
	invalidMetadata   = "InvalidMetadata"
	envRejected       = "EnvVarsInjectionRejected"
	volumeClaimsError = "VolumeClaimTemplatesError"
)

// podTemplate describes the program of a sandbox. Its specification is kept as it is written, so that each field of it is either
// mapped or refused.
type podTemplate struct {
	Metadata podMetadata    `json:"metadata,omitzero"`
	Spec     map[string]any `json:"spec"`
}

type podMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// blueprint is what a Sandbox and a SandboxTemplate have in common.
type blueprint struct {
	PodTemplate          podTemplate `json:"podTemplate"`
	VolumeClaimTemplates []any       `json:"volumeClaimTemplates,omitempty"`
	Service              *bool       `json:"service,omitempty"`
}

type sandbox struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              sandboxSpec   `json:"spec"`
	Status            sandboxStatus `json:"status"`
}

type sandboxSpec struct {
	blueprint
	OperatingMode  string       `json:"operatingMode,omitempty"`
	ShutdownTime   *metav1.Time `json:"shutdownTime,omitempty"`
	ShutdownPolicy string       `json:"shutdownPolicy,omitempty"`
}

type sandboxStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func (s *sandbox) suspended() bool { return s.Spec.OperatingMode == "Suspended" }

type template struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              templateSpec `json:"spec"`
}

type templateSpec struct {
	blueprint
	NetworkPolicy           map[string]any `json:"networkPolicy,omitempty"`
	NetworkPolicyManagement string         `json:"networkPolicyManagement,omitempty"`
	EnvVarsInjectionPolicy  string         `json:"envVarsInjectionPolicy,omitempty"`
}

type claim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              claimSpec   `json:"spec"`
	Status            claimStatus `json:"status"`
}

type claimSpec struct {
	WarmPoolRef           nameRef     `json:"warmPoolRef"`
	Lifecycle             lifecycle   `json:"lifecycle,omitzero"`
	AdditionalPodMetadata podMetadata `json:"additionalPodMetadata,omitzero"`
	Env                   []envVar    `json:"env,omitempty"`
	VolumeClaimTemplates  []any       `json:"volumeClaimTemplates,omitempty"`
}

type nameRef struct {
	Name string `json:"name"`
}

type lifecycle struct {
	ShutdownTime            *metav1.Time `json:"shutdownTime,omitempty"`
	ShutdownPolicy          string       `json:"shutdownPolicy,omitempty"`
	TTLSecondsAfterFinished *int64       `json:"ttlSecondsAfterFinished,omitempty"`
}

type envVar struct {
	Name          string `json:"name"`
	Value         string `json:"value"`
	ContainerName string `json:"containerName,omitempty"`
}

type claimStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Sandbox    nameRef            `json:"sandbox,omitzero"`
}

type warmPool struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              warmPoolSpec   `json:"spec"`
	Status            warmPoolStatus `json:"status"`
}

type warmPoolSpec struct {
	Replicas       *int64  `json:"replicas,omitempty"`
	TemplateRef    nameRef `json:"sandboxTemplateRef"`
	UpdateStrategy struct {
		Type string `json:"type,omitempty"`
	} `json:"updateStrategy,omitzero"`
}

type warmPoolStatus struct {
	Replicas           int64  `json:"replicas"`
	ReadyReplicas      int64  `json:"readyReplicas"`
	Selector           string `json:"selector,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// decode reads an object of the cluster.
func decode[T any](u *unstructured.Unstructured) (*T, error) {
	v := new(T)
	b, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return v, nil
}

// encode turns a value into the form that objects of the cluster have.
func encode(v any) map[string]any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot fail: these are our own types
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		panic(err)
	}
	return m
}

// setCondition sets a condition. Its time changes only when its status does.
func setCondition(list *[]metav1.Condition, generation int64, kind string, status bool, reason, message string) {
	const longest = 8 << 10 // bytes; the API refuses more than 32 KiB
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + " ..."
	}
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(list, metav1.Condition{Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: generation})
}

func isReady(list []metav1.Condition) bool { return meta.IsStatusConditionTrue(list, ready) }

// owner returns the object that controls another one; nil if none does.
func owner(m metav1.ObjectMeta) *metav1.OwnerReference { return metav1.GetControllerOfNoCopy(&m) }

// ownedBy reports whether an object of this kind and UID controls another one.
func ownedBy(m metav1.ObjectMeta, kind string, by metav1.ObjectMeta) bool {
	o := owner(m)
	return o != nil && o.Kind == kind && o.UID == by.UID && strings.HasPrefix(o.APIVersion, claims.Group+"/")
}

// controlledBy returns the reference of an owner that controls an object.
func controlledBy(kind string, by metav1.ObjectMeta) map[string]any {
	return map[string]any{
		"apiVersion": claims.GroupVersion().String(), "kind": kind, "name": by.Name, "uid": string(by.UID), "controller": true, "blockOwnerDeletion": true,
	}
}

func hasFinalizer(m metav1.ObjectMeta) bool { return slices.Contains(m.Finalizers, finalizer) }

// shortHash returns a label value for any text.
func shortHash(parts ...any) string {
	b, err := json.Marshal(parts)
	if err != nil {
		panic(err) // cannot fail: these are our own types
	}
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%x", sum[:10])
}

// sandboxID returns the id of a Sandbox's sandbox on the server. It contains the object's UID, so two objects never
// have the same sandbox, whatever their names, namespaces and times are; the name is for people.
func sandboxID(name, uid string) string {
	const longest = 63 - 37 // of the name, before a hyphen and the UID
	name = strings.ReplaceAll(name, ".", "-")
	name = strings.Trim(name[:min(len(name), longest)], "-")
	return strings.TrimPrefix(name+"-"+uid, "-")
}
