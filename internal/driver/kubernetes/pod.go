package kubernetes

import (
	"maps"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hutch/internal/driver"
	"hutch/internal/driver/kubernetes/inside"
	"hutch/internal/driver/memguard"
)

// These are labels of a pod.
const (
	managedLabel = "app.kubernetes.io/managed-by" // managedBy
	serverLabel  = "hutch/server"                 // the id of the server
	sandboxLabel = "hutch/sandbox"                // the id of the instance
	managedBy    = "hutch"
)

// programRoom limits the volume with the agent's program, in MiB.
const programRoom = 256

// firstCapabilities let the first process of the container give ids to the user namespace of the instance. The Pod
// Security Standard "baseline" allows them.
var firstCapabilities = []core.Capability{"SETUID", "SETGID", "SETFCAP"}

// pod describes the pod of an instance. imageName is the image in the cluster.
func (d *Driver) pod(spec driver.Spec, server, imageName string) *core.Pod {
	pod := d.template.DeepCopy()
	pod.Name = podName(server, spec.ID)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[managedLabel], pod.Labels[serverLabel], pod.Labels[sandboxLabel] = managedBy, server, spec.ID
	no, grace := false, int64(1)
	pod.Spec.RestartPolicy = core.RestartPolicyNever
	pod.Spec.AutomountServiceAccountToken, pod.Spec.EnableServiceLinks = &no, &no
	pod.Spec.TerminationGracePeriodSeconds = &grace
	room := resource.NewQuantity(programRoom<<20, resource.BinarySI)
	pod.Spec.Volumes = []core.Volume{{Name: volumeName, VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{SizeLimit: room}}}}

	main := &pod.Spec.Containers[0]
	installer := core.Container{Name: installerName, Image: main.Image, ImagePullPolicy: main.ImagePullPolicy, SecurityContext: main.SecurityContext.DeepCopy()}
	if len(pod.Spec.InitContainers) == 1 {
		installer = pod.Spec.InitContainers[0]
	}
	if imageName != "" {
		main.Image = imageName
	}
	main.Command = []string{inside.Folder + "/agent", inside.PodCommand}
	limits := memguard.LimitsOf(int64(spec.Limits.Memory) << 20)
	main.Resources.Limits = resources(spec.Limits.CPU, limits.Last())
	requests := resources(spec.Limits.CPU, limits.Soft) // the reserves are rarely used
	maps.Copy(requests, main.Resources.Requests)
	main.Resources.Requests = requests
	if installer.Resources.Requests == nil { // a pod has limits only if all its containers have
		installer.Resources.Requests = main.Resources.Requests
	}
	installer.Resources.Limits = main.Resources.Limits
	main.TerminationMessagePolicy = core.TerminationMessageFallbackToLogsOnError
	installer.Command = []string{"hutch-agent", inside.InstallCommand, inside.Folder}
	installer.TerminationMessagePolicy = core.TerminationMessageFallbackToLogsOnError
	for c, capabilities := range map[*core.Container][]core.Capability{main: firstCapabilities, &installer: nil} {
		confine(c, capabilities)
		c.VolumeMounts = []core.VolumeMount{{Name: volumeName, MountPath: inside.Folder}}
	}
	pod.Spec.InitContainers = []core.Container{installer}
	return pod
}

// confine removes everything from a container that it does not need. It keeps the profiles of the template.
func confine(c *core.Container, capabilities []core.Capability) {
	if c.SecurityContext == nil {
		c.SecurityContext = &core.SecurityContext{}
	}
	s, yes, no, root := c.SecurityContext, true, false, int64(0)
	s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = &root, &root, &no
	s.Privileged, s.AllowPrivilegeEscalation, s.ReadOnlyRootFilesystem = &no, &no, &yes
	s.Capabilities = &core.Capabilities{Drop: []core.Capability{"ALL"}, Add: capabilities}
}

// resources returns limits of CPU, in cores, and of memory, in bytes.
func resources(cpu float64, memory int64) core.ResourceList {
	return core.ResourceList{
		core.ResourceCPU:    *resource.NewMilliQuantity(int64(cpu*1000), resource.DecimalSI),
		core.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
	}
}

// podName returns the name of an instance's pod. It is unique among the instances of all servers.
func podName(server, id string) string { return "hutch-" + server + "-" + id }

// dead reports whether a pod has ended, or will never start.
func dead(pod *core.Pod) bool {
	if pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed {
		return true
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return true
		}
	}
	return false
}

func running(pod *core.Pod) bool {
	return pod.Status.Phase == core.PodRunning && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Running != nil
}

// permanentReasons are the reasons of waiting containers for which longer waiting does not help.
var permanentReasons = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true, "CreateContainerConfigError": true,
	"CreateContainerError": true, "RunContainerError": true,
}

// waitReason returns the reason why a pod does not run; final is true if longer waiting does not help.
func waitReason(pod *core.Pod) (why string, final bool) {
	for _, c := range append(pod.Status.InitContainerStatuses[:len(pod.Status.InitContainerStatuses):len(pod.Status.InitContainerStatuses)], pod.Status.ContainerStatuses...) {
		if w := c.State.Waiting; w != nil && permanentReasons[w.Reason] {
			return "container " + c.Name + ": " + w.Reason + ": " + w.Message, true
		}
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return "container " + c.Name + " ended: " + t.Reason + " " + t.Message, true
		}
	}
	if dead(pod) {
		return "the pod ended: " + pod.Status.Reason + " " + pod.Status.Message, true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return "no machine takes the pod: " + c.Message, false
		}
	}
	return "the pod is " + string(pod.Status.Phase), false
}

// ours selects the pods of a server.
func ours(server string) meta.ListOptions {
	return meta.ListOptions{LabelSelector: managedLabel + "=" + managedBy + "," + serverLabel + "=" + server}
}
