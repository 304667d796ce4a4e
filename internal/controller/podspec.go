package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"hutch"
	"hutch/internal/controller/router"
	"hutch/internal/jsonfault"
)

// program is the container's program.
type program struct {
	command    []string
	entrypoint bool // the image's own
	dir        string
	restart    hutch.RestartPolicy
}

// translation is what a blueprint becomes.
type translation struct {
	create   hutch.CreateRequest
	program  program
	nonRoot  string   // path of the field that asks for another user than root; empty if none does
	unmapped []string // fields that have no counterpart here
}

// translate turns a blueprint into a sandbox. Every field is mapped, or is listed as not mapped: to ignore a field
// would make a different sandbox than the object asks for.
func translate(b blueprint) translation {
	t := translation{}
	t.refuseIf(len(b.VolumeClaimTemplates) > 0, "volumeClaimTemplates")
	t.refuseIf(b.Service != nil && *b.Service, "service: true")
	t.refuseIf(empty(b.PodTemplate.Spec["containers"]), "podTemplate.spec without containers")
	if v := b.PodTemplate.Spec["securityContext"]; !empty(v) {
		t.securityContext(v, "podTemplate.spec.securityContext") // before the container's context, which overrides it
	}
	each(b.PodTemplate.Spec, "podTemplate.spec.", t.podField)
	user, _, _ := strings.Cut(t.create.User, ":")
	t.refuseIf(t.nonRoot != "" && (user == "" || user == "0"), t.nonRoot+" without runAsUser")
	t.refuseIf(user == "" && t.create.User != "", "securityContext.runAsGroup without runAsUser")
	if t.program.entrypoint = len(t.program.command) == 0 && t.create.Image != ""; t.program.restart == "" && !t.program.entrypoint {
		t.program.restart = hutch.RestartAlways // as the kubelet does
	}
	return t
}

// err is nil if every field is mapped.
func (t *translation) err() error {
	const most = 20 // fields in a message
	if len(t.unmapped) == 0 {
		return nil
	}
	list := t.unmapped
	more := ""
	if len(list) > most {
		list, more = list[:most], fmt.Sprintf(" and %d more", len(list)-most)
	}
	return hutch.Errorf(hutch.Unsupported, "Hutch has nothing that corresponds to %s%s: remove these fields; its page about agent-sandbox lists those that it maps", strings.Join(list, ", "), more)
}

func (t *translation) refuse(path string) {
	const longest = 200 // bytes of a name
	t.unmapped = append(t.unmapped, path[:min(len(path), longest)])
}

func (t *translation) refuseIf(wrong bool, path string) {
	if wrong {
		t.refuse(path)
	}
}

// each calls f for each field that is set, in the order of their names.
func each(fields map[string]any, path string, f func(name string, v any, path string)) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[name]; !empty(v) {
			f(name, v, path+name)
		}
	}
}

// empty reports whether a value is that of a field that is not set.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func (t *translation) podField(name string, v any, path string) {
	switch name {
	case "containers":
		t.containers(v, path)
	case "restartPolicy":
		t.restartPolicy(v, path)
	case "runtimeClassName":
		t.create.Runtime = "gvisor"
		t.refuseIf(v != "gvisor", fmt.Sprintf("%s: %v", path, v))
	case "automountServiceAccountToken", "enableServiceLinks", "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace":
		t.refuseIf(v != false, fmt.Sprintf("%s: %v", path, v))
	case "securityContext": // translate has read it
	default:
		t.refuse(path)
	}
}

func (t *translation) restartPolicy(v any, path string) {
	switch v {
	case "Always":
		t.program.restart = hutch.RestartAlways
	case "OnFailure":
		t.program.restart = hutch.RestartOnFailure
	case "Never":
		t.program.restart = hutch.RestartNever
	default:
		t.refuse(fmt.Sprintf("%s: %v", path, v))
	}
}

func (t *translation) containers(v any, path string) {
	list, _ := v.([]any)
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		fields, ok := v.(map[string]any)
		if i > 0 || !ok {
			t.refuse(at)
			continue
		}
		each(fields, at+".", t.containerField)
		t.refuseIf(!empty(fields["args"]) && empty(fields["command"]), at+".args without command")
	}
	t.refuseIf(len(list) == 0, path) // not a list
}

func (t *translation) containerField(name string, v any, path string) {
	var ok bool
	switch name {
	case "name":
	case "image":
		t.create.Image, ok = v.(string)
		t.refuseIf(!ok, path)
	case "imagePullPolicy":
		t.create.Pull, ok = map[any]hutch.PullPolicy{"Always": hutch.PullAlways, "IfNotPresent": hutch.PullMissing, "Never": hutch.PullNever}[v]
		t.refuseIf(!ok, fmt.Sprintf("%s: %v", path, v))
	case "command":
		t.program.command = append(t.words(v, path), t.program.command...)
	case "args":
		t.program.command = append(t.program.command, t.words(v, path)...)
	case "workingDir":
		t.program.dir, _ = v.(string)
		t.refuseIf(!strings.HasPrefix(t.program.dir, "/"), path)
	case "env":
		t.env(v, path)
	case "ports": // the ports of a container are only documentation
		t.list(v, path, "name", "containerPort", "protocol")
	case "resources":
		t.resources(v, path)
	case "readinessProbe", "livenessProbe", "startupProbe":
		t.probe(v, path)
	case "securityContext":
		t.securityContext(v, path)
	case "stdin", "tty", "stdinOnce":
		t.refuseIf(v != false, path)
	default:
		t.refuse(path)
	}
}

func (t *translation) words(v any, path string) (words []string) {
	list, _ := v.([]any)
	for _, v := range list {
		word, ok := v.(string)
		t.refuseIf(!ok || strings.Contains(word, "$("), path+" with a variable of Kubernetes") // $(NAME) is the kubelet's
		words = append(words, word)
	}
	return words
}

// list refuses all fields in the entries of a list, except those with the given names.
func (t *translation) list(v any, path string, names ...string) (entries []map[string]any) {
	list, _ := v.([]any)
	for i, v := range list {
		fields, ok := v.(map[string]any)
		t.refuseIf(!ok, fmt.Sprintf("%s[%d]", path, i))
		each(fields, fmt.Sprintf("%s[%d].", path, i), func(name string, _ any, path string) {
			t.refuseIf(!slices.Contains(names, name), path)
		})
		entries = append(entries, fields)
	}
	return entries
}

func (t *translation) env(v any, path string) {
	t.create.Env = map[string]string{}
	for i, fields := range t.list(v, path, "name", "value") {
		name, _ := fields["name"].(string)
		value, _ := fields["value"].(string)
		t.refuseIf(strings.Contains(value, "$("), fmt.Sprintf("%s[%d].value with a variable of Kubernetes", path, i))
		t.create.Env[name] = value
	}
}

// resources takes a limit or, without one, the request, because a sandbox has only one figure for each resource.
func (t *translation) resources(v any, path string) {
	fields, _ := v.(map[string]any)
	for _, name := range []string{"requests", "limits"} {
		amounts, _ := fields[name].(map[string]any)
		each(amounts, path+"."+name+".", func(resource string, v any, path string) {
			t.refuseIf(!t.amount(resource, fmt.Sprint(v)), path)
		})
	}
	each(fields, path+".", func(name string, _ any, path string) { t.refuseIf(name != "requests" && name != "limits", path) })
}

func (t *translation) amount(name, text string) bool {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return false
	}
	mib := int(math.Ceil(q.AsApproximateFloat64() / (1 << 20)))
	limits := &t.create.Limits
	switch name {
	case "cpu":
		limits.CPU = q.AsApproximateFloat64()
	case "memory":
		limits.Memory = mib
	case "ephemeral-storage":
		limits.Disk = mib
	default:
		return false
	}
	return true
}

// probe accepts probes of the port where the router itself answers for the runtime.
func (t *translation) probe(v any, path string) {
	fields, _ := v.(map[string]any)
	each(fields, path+".", func(name string, v any, path string) {
		switch name {
		case "initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold":
		case "httpGet", "tcpSocket":
			action, _ := v.(map[string]any)
			t.refuseIf(fmt.Sprint(action["port"]) != fmt.Sprint(router.RuntimePort), fmt.Sprintf("%s.port: %v", path, action["port"]))
			t.refuseIf(name == "httpGet" && action["path"] != nil && action["path"] != "/", fmt.Sprintf("%s.path: %v", path, action["path"]))
		default:
			t.refuse(path)
		}
	})
}

// securityContext accepts settings that every sandbox has anyway, and takes over the user. A later call overrides an
// earlier one.
func (t *translation) securityContext(v any, path string) {
	fields, _ := v.(map[string]any)
	each(fields, path+".", func(name string, v any, path string) {
		switch name {
		case "privileged", "readOnlyRootFilesystem":
			t.refuseIf(v != false, path)
		case "runAsUser", "runAsGroup":
			n, ok := number(v)
			t.refuseIf(!ok, path)
			user, group, _ := strings.Cut(t.create.User, ":")
			if name == "runAsUser" {
				user = n
			} else {
				group = n
			}
			t.create.User = strings.TrimSuffix(user+":"+group, ":")
		case "runAsNonRoot":
			if t.nonRoot = path; v == false {
				t.nonRoot = ""
			}
		case "seccompProfile":
			profile, _ := v.(map[string]any)
			t.refuseIf(profile["type"] != "RuntimeDefault", path)
		default:
			t.refuse(path)
		}
	})
}

func number(v any) (string, bool) {
	switch v := v.(type) {
	case int64:
		return fmt.Sprint(v), v >= 0
	case float64:
		return fmt.Sprintf("%.0f", v), v >= 0 && v == math.Trunc(v)
	}
	return "", false
}

// readNetwork reads the network from a Sandbox's annotation. Without the annotation it returns the server's default.
func readNetwork(text string) (n hutch.Network, err error) {
	if text == "" {
		return n, nil
	}
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return n, hutch.Errorf(hutch.Invalid, "the annotation %s is not a network in JSON, such as {\"mode\": \"open\"}: %s", networkRules, strings.Replace(jsonfault.Explain([]byte(text), &n, err).Message, "the body", "it", 1))
	}
	if len(n.Links) > 0 {
		// All sandboxes of the controller have one owner, so a link would lead into other namespaces.
		return n, hutch.Errorf(hutch.Unsupported, "the annotation %s has links: remove them, because a link can lead to sandboxes of other namespaces", networkRules)
	}
	if len(n.Headers) > 0 {
		return n, hutch.Errorf(hutch.Unsupported, "the annotation %s has header rules: remove them, because their values would be in the cluster for everyone who can read the object", networkRules)
	}
	if n.Proxy != nil && n.Proxy.Username != "" {
		return n, hutch.Errorf(hutch.Unsupported, "the annotation %s has the user name of a proxy: remove it, because its password would be in the cluster for everyone who can read the object", networkRules)
	}
	return n, nil
}

// templateNetwork returns what the sandboxes of a template reach: without a policy, the public internet; with one, the
// networks that it names.
func templateNetwork(spec templateSpec) (hutch.Network, error) {
	t := translation{}
	t.refuseIf(spec.NetworkPolicyManagement == "Unmanaged", "networkPolicyManagement: Unmanaged")
	if spec.NetworkPolicy == nil {
		return hutch.Network{Mode: hutch.NetworkOpen}, t.err()
	}
	n := hutch.Network{Mode: hutch.NetworkNone}
	each(spec.NetworkPolicy, "networkPolicy.", func(name string, v any, path string) {
		if name != "egress" {
			t.refuse(path) // only the router leads in
			return
		}
		for i, rule := range t.list(v, path, "to", "ports") {
			t.egress(rule, fmt.Sprintf("%s[%d]", path, i), &n)
		}
	})
	if len(n.Allow) > 0 {
		n.Mode = hutch.NetworkAllowList
	}
	return n, t.err()
}

func (t *translation) egress(rule map[string]any, path string, n *hutch.Network) {
	var ports []string
	for i, port := range t.list(rule["ports"], path+".ports", "protocol", "port") {
		p, ok := number(port["port"])
		if protocol := port["protocol"]; !ok || protocol != nil && protocol != "TCP" {
			t.refuse(fmt.Sprintf("%s.ports[%d] that is not a number of TCP", path, i))
		}
		ports = append(ports, p)
	}
	to := t.list(rule["to"], path+".to", "ipBlock")
	t.refuseIf(len(to) == 0, path+" without to")
	for i, peer := range to {
		at := fmt.Sprintf("%s.to[%d].ipBlock", path, i)
		block, _ := peer["ipBlock"].(map[string]any)
		each(block, at+".", func(name string, _ any, path string) { t.refuseIf(name != "cidr" && name != "except", path) })
		cidr, _ := block["cidr"].(string)
		n.Allow = append(n.Allow, t.rules(cidr, ports, at+".cidr")...)
		except, _ := block["except"].([]any)
		for _, v := range except {
			cidr, _ := v.(string)
			n.Block = append(n.Block, t.rules(cidr, nil, at+".except")...)
		}
	}
}

// rules returns the rules for a network: at the given ports, or at all ports if none are given.
func (t *translation) rules(cidr string, ports []string, path string) (rules hutch.NetworkRules) {
	texts := []string{cidr}
	if len(ports) > 0 {
		texts = nil
	}
	for _, port := range ports {
		host := cidr
		if strings.Contains(host, ":") {
			address, bits, _ := strings.Cut(cidr, "/")
			host = "[" + address + "]/" + bits
		}
		texts = append(texts, host+":"+port)
	}
	for _, text := range texts {
		rule, err := hutch.ParseNetworkRule(text)
		t.refuseIf(err != nil || !rule.Net.IsValid(), path)
		rules = append(rules, rule)
	}
	return rules
}
