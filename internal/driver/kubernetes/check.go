package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// checkTime bounds the whole check.
const checkTime = 2 * time.Minute

// Check implements driver.Driver. It creates a small sandbox and removes it, because only that shows whether pods can
// hold sandboxes.
func (d *Driver) Check(ctx context.Context) driver.Report {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	cluster := d.checkCluster(ctx)
	if cluster.Level != driver.Good {
		return driver.Report{Findings: []driver.Finding{cluster}}
	}
	r := driver.Report{OK: true, Findings: append([]driver.Finding{cluster, d.checkClass()}, d.attempt(ctx)...)}
	for _, f := range r.Findings {
		r.OK = r.OK && f.Level != driver.Bad
	}
	return r
}

func (d *Driver) checkCluster(ctx context.Context) driver.Finding {
	f := driver.Finding{Name: "cluster", Level: driver.Good}
	api, err := d.client()
	var v version.Info
	if err == nil {
		var text []byte
		text, err = api.Get().AbsPath("/version").DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
	}
	if err != nil {
		f.Level, f.Detail = driver.Bad, oneLine(err)
		f.Fix = "set KUBECONFIG to the cluster's file, or run the server in a pod with a service account"
		return f
	}
	f.Detail = fmt.Sprintf("%s, namespace %s", v.GitVersion, d.template.Namespace)
	return f
}

// checkClass warns if pods share the kernel of their machine.
func (d *Driver) checkClass() driver.Finding {
	f := driver.Finding{Name: "runtime class", Level: driver.Good}
	if class := d.template.Spec.RuntimeClassName; class != nil && *class != "" {
		f.Detail = *class
		return f
	}
	f.Level, f.Detail = driver.Warning, "pods have the cluster's usual runtime, which is most often runc: their programs then share the kernel of the machine"
	f.Fix = "set spec.runtimeClassName in the template to a class of gVisor or Kata"
	return f
}

// fresh is how long the result of a successful trial is valid. Readiness probes check often, and wait only a second.
const fresh = 10 * time.Minute

// trials has the results of trials. Only one trial runs at a time, and it can outlive the caller that began it.
type trials struct {
	mu     sync.Mutex
	good   []driver.Finding // findings of the last trial, if it succeeded
	begun  time.Time
	result chan []driver.Finding // gets the findings of the trial in progress, for each caller; nil for none
}

// attempt returns the findings of a trial.
func (d *Driver) attempt(ctx context.Context) []driver.Finding {
	t := &d.trials
	t.mu.Lock()
	good := t.good
	if t.result == nil && (good == nil || time.Since(t.begun) > fresh) {
		t.begun, t.result = time.Now(), make(chan []driver.Finding, 1)
		go d.attemptNow(t.result)
	}
	result := t.result
	t.mu.Unlock()
	if good != nil {
		return good
	}
	select {
	case found := <-result:
		result <- found
		return found
	case <-ctx.Done():
		return []driver.Finding{{Name: "sandbox", Level: driver.Bad, Detail: "a pod is still being tried", Fix: "ask again in a moment"}}
	}
}

func (d *Driver) attemptNow(result chan<- []driver.Finding) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	found := d.trial(ctx)
	d.trials.mu.Lock()
	defer d.trials.mu.Unlock()
	d.trials.good, d.trials.result = nil, nil
	if found[0].Level == driver.Good {
		d.trials.good = found
	}
	result <- found
}

// trial creates a sandbox with only its agent.
func (d *Driver) trial(ctx context.Context) []driver.Finding {
	begin := time.Now()
	network, err := d.try(ctx)
	if err != nil {
		return []driver.Finding{{
			Name: "sandbox", Level: driver.Bad, Detail: oneLine(err),
			Fix: "look at the error; the server needs the rights of deploy/kubernetes/pods/role.yaml, and pods a runtime class or a seccomp profile that allows user namespaces (docs/runtimes.md)",
		}}
	}
	device := driver.Finding{Name: "network devices", Level: driver.Good, Detail: "a sandbox can have a network of its own"}
	if !network {
		device.Level, device.Detail = driver.Warning, "sandboxes have no network: their pods have no /dev/net/tun"
		device.Fix = "set spec.runtimeClassName in the template to a class of gVisor"
	}
	return []driver.Finding{{Name: "sandbox", Level: driver.Good, Detail: fmt.Sprintf("made and removed in %v", time.Since(begin).Round(time.Millisecond))}, device}
}

func (d *Driver) try(ctx context.Context) (network bool, err error) {
	dir, err := os.MkdirTemp("", "hutch-kubernetes-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	root := image.Root{Dir: dir}
	err = os.Mkdir(filepath.Join(dir, "etc"), 0o755)
	for _, name := range etcFiles {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "etc", name), nil, 0o644))
	}
	if err != nil {
		return false, err
	}
	inst, err := d.Create(ctx, driver.Spec{
		ID: "check-" + strings.ToLower(rand.Text()[:8]), Root: root, Network: true,
		Limits: hutch.Limits{CPU: 0.1, Memory: 64, Disk: 1, PIDs: 16, Processes: 1},
		Boot:   wire.Boot{Token: rand.Text(), Home: "/", Dir: "/", Hostname: "check"},
	})
	if err != nil {
		return false, err
	}
	network = inst.(*instance).record.Network
	return network, inst.Destroy(context.WithoutCancel(ctx))
}

// oneLine returns the text of an error with its causes.
func oneLine(err error) string {
	if cause := hutch.AsError(err).Cause; cause != nil {
		err = cause
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
