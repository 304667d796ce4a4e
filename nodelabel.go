package hutch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// maxNodeLabels is the highest number of labels, or of taints, of a node or of a request.
	maxNodeLabels = 16

	maxNodeLabelPrefix = 253 // as in Kubernetes
)

// Keys and values of labels have the form that they have in Kubernetes.
var (
	nodeLabelPrefix = pattern(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	nodeLabelName   = pattern(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// CheckNodeLabels refuses labels or taints that no node can have.
func CheckNodeLabels(labels map[string]string) error {
	if len(labels) > maxNodeLabels {
		return Errorf(Invalid, "there can be %d labels or taints of nodes at most, not %d", maxNodeLabels, len(labels))
	}
	for key, value := range labels {
		if !isNodeLabelKey(key) {
			return Errorf(Invalid, "%.80q is not a key of a label or taint: use 1 to 63 letters, digits and -_. with a letter or digit at both ends, and before them a domain and / if you like, as in example.com/zone", key)
		}
		if value != "" && !nodeLabelName().MatchString(value) {
			return Errorf(Invalid, "%.80q is not a value of the label or taint %s: use at most 63 letters, digits and -_. with a letter or digit at both ends", value, key)
		}
	}
	return nil
}

func isNodeLabelKey(key string) bool {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		return nodeLabelName().MatchString(key)
	}
	return len(prefix) <= maxNodeLabelPrefix && nodeLabelPrefix().MatchString(prefix) && nodeLabelName().MatchString(name)
}

// FormatNodeLabels returns labels or taints as KEY=VALUE, by key, with commas between them.
func FormatNodeLabels(labels map[string]string) string {
	list := slices.Sorted(maps.Keys(labels))
	for i, key := range list {
		list[i] = fmt.Sprintf("%s=%s", key, labels[key])
	}
	return strings.Join(list, ",")
}

// MatchNodeSelector refuses a node selector that the labels of the only node do not match.
func MatchNodeSelector(selector, labels map[string]string) error {
	for key, value := range selector {
		if has, ok := labels[key]; !ok || has != value {
			return Errorf(Invalid, "this machine does not have the label %s=%s of nodeSelector: leave it out, or give the label to a server with `hutch serve --node-label %[1]s=%[2]s`", key, value).Naming(AboutField, "nodeSelector")
		}
	}
	return nil
}
