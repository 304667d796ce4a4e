package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"reflect"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	containerName = "sandbox"
	installerName = "agent"
	volumeName    = "hutch"
)

// readTemplate reads the file with the pod that instances are made from.
func readTemplate(path string) ([]byte, *core.Pod, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the template of pods: %w", err)
	}
	var pod core.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		return nil, nil, fmt.Errorf("read the template of pods %s: %w", path, err)
	}
	if err := checkTemplate(pod); err != nil {
		return nil, nil, fmt.Errorf("the template of pods %s: %w", path, err)
	}
	return text, &pod, nil
}

// checkTemplate refuses settings that an instance would ignore, or must not have.
func checkTemplate(pod core.Pod) error {
	spec := pod.Spec
	switch {
	case pod.Kind != "Pod" || pod.APIVersion != "v1":
		return errors.New("it is not a Pod of v1")
	case pod.Namespace == "":
		return errors.New("metadata.namespace is missing: name the namespace in which pods are made, which should have nothing else")
	case pod.Name != "" || pod.GenerateName != "":
		return errors.New("metadata.name must be empty: each pod gets a name of its own")
	case spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace:
		return errors.New("hostNetwork, hostPID, hostIPC and shareProcessNamespace must be off")
	case len(spec.Volumes) > 0 || len(spec.EphemeralContainers) > 0:
		return errors.New("spec.volumes and spec.ephemeralContainers must be empty")
	case len(spec.Containers) != 1 || spec.Containers[0].Name != containerName || spec.Containers[0].Image == "":
		return fmt.Errorf("spec.containers must have one container named %q with an image, whose programs sandboxes of the image \"host\" have", containerName)
	case len(spec.InitContainers) > 1 || len(spec.InitContainers) == 1 && (spec.InitContainers[0].Name != installerName || spec.InitContainers[0].Image == ""):
		return fmt.Errorf("spec.initContainers may only have one container named %q with an image, which has the program hutch-agent on its PATH", installerName)
	}
	for _, c := range append(spec.InitContainers[:len(spec.InitContainers):len(spec.InitContainers)], spec.Containers...) {
		if err := checkContainer(c); err != nil {
			return err
		}
	}
	return nil
}

// checkContainer refuses fields that the driver sets itself.
func checkContainer(c core.Container) error {
	name := c.Name
	c.Name, c.Image, c.ImagePullPolicy = "", "", ""
	c.Resources.Requests = nil
	if s := c.SecurityContext; s != nil {
		rest := *s
		rest.SeccompProfile, rest.AppArmorProfile, rest.SELinuxOptions = nil, nil, nil
		if rest == (core.SecurityContext{}) {
			c.SecurityContext = nil
		}
	}
	if !reflect.DeepEqual(c, core.Container{}) {
		return fmt.Errorf("the container %q may only have image, imagePullPolicy, resources.requests, and the seccomp, AppArmor and SELinux settings of its securityContext", name)
	}
	return nil
}
