//go:build kubernetes

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest/pgtest"
)

const token = "kubernetes-token-of-no-worth"

// small has the values for nodes on a machine of two cores.
var small = values{
	"image": "localhost/hutch:1", "imagePullPolicy": "Never", "replicas": 3,
	"resources":   values{"requests": values{"cpu": "10m", "memory": "64Mi"}, "limits": values{"memory": "2Gi"}},
	"persistence": values{"size": "1Gi"},
	"env":         values{"HUTCH_POOL": "0", "HUTCH_COLD_COMPILERS": "true", "HUTCH_REQUESTS_PER_MINUTE": "-1", "HUTCH_OPERATIONS_PER_HOUR": "-1", "HUTCH_SANDBOXES_PER_TOKEN": "-1"},
}

// report is what the test has seen, for REPORT.md.
type report struct{ lines []string }

func (r *report) add(t *testing.T, what, came string) {
	t.Helper()
	t.Logf("%s: %s", what, came)
	r.lines = append(r.lines, fmt.Sprintf("| %s | %s |", what, came))
}

func since(begin time.Time) string { return time.Since(begin).Round(100 * time.Millisecond).String() }

// TestCluster: a fleet in a real cluster founds itself, and loses nothing when its pods are ended, drained and upgraded.
func TestCluster(t *testing.T) {
	if !inside(t) {
		return
	}
	var r report
	begin := time.Now()
	c := newCluster(t)
	r.add(t, "a cluster from its programs", since(begin))
	c.prepare()
	c.profile()
	r.add(t, "seccomp.yaml puts the profile on the machine", "yes, as root without capabilities")
	for name, preset := range presets(t) {
		c.apply(render(t, "dry", "hutch", preset, everything), "--dry-run=server")
		r.add(t, "the API takes each field of the preset "+name, "yes, with `--validate=strict`")
	}

	c.restricted(t, &r)

	begin = time.Now()
	c.apply(render(t, "hutch", "hutch", small))
	pods := []string{"hutch-0", "hutch-1", "hutch-2"}
	for _, p := range pods {
		c.podIP(p)
	}
	r.add(t, "3 nodes ready, from `kubectl apply`", since(begin))
	c.eventually("three nodes are one fleet", func() bool {
		out, err := c.try("kubectl", "-n", "hutch", "exec", "hutch-0", "--", "hutch", "node", "ls")
		return err == nil && strings.Count(out, " ready ") == 3
	})
	r.add(t, "the nodes found and join one fleet", "yes, all three started at once")
	c.confined(t, &r)

	boxes := c.fill(t, &r)
	check := func(after string, waked bool) {
		t.Helper()
		for i, b := range boxes {
			b.through(c, pods[(i+1)%len(pods)])
			b.stillThere(t, after)
		}
		r.add(t, after, "all "+strconv.Itoa(len(boxes))+" sandboxes there, with their processes and what those had in memory")
	}
	check("each sandbox through another node", false)

	for _, b := range boxes {
		if _, err := b.Hibernate(t.Context(), b.id, hutch.HibernateRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	check("after `hutch hibernate`", true)

	begin = time.Now()
	c.kubectl("delete", "pod", "hutch-1")
	r.add(t, "`kubectl delete pod` ends a node with SIGTERM", since(begin))
	c.podIP("hutch-1")
	check("after a pod was ended", true)

	list := c.builds(pods[0])
	if len(list) != 1 {
		t.Fatalf("a node of one version keeps the programs %v", list)
	}
	first := list[0]
	begin = time.Now()
	for _, p := range pods {
		c.podIP(p)
	}
	c.kubectl("set", "image", "statefulset/hutch", "hutch=localhost/hutch:2")
	c.kubectl("rollout", "status", "statefulset/hutch", "--timeout=10m")
	r.add(t, "a rolling upgrade of 3 nodes to another image", since(begin))
	for _, p := range pods {
		c.podIP(p)
		if image := c.kubectl("get", "pod", p, "-o", "jsonpath={.spec.containers[0].image}"); image != "localhost/hutch:2" {
			t.Errorf("%s has the image %s", p, image)
		}
	}
	check("after a rolling upgrade", true)
	c.afterUpgrade(t, &r, first, boxes, pods)

	c.drain(t, &r)
	for _, p := range pods {
		c.podIP(p)
	}
	check("after the machine was drained and came back", true)

	c.kill(t, &r, boxes, pods)
	r.write(t)
}

// afterUpgrade: the second version has different programs, and what slept before runs in the programs of the first
// version.
func (c *cluster) afterUpgrade(t *testing.T, r *report, first string, boxes []*box, pods []string) {
	t.Helper()
	for _, b := range boxes {
		build, pod := c.buildOf(b.id, pods...)
		if build != first {
			t.Errorf("after a rolling upgrade, %s runs in %s in %s; it was saved by %s", b.id, build, pod, first)
		}
	}
	fresh := &box{id: "fresh"}
	fresh.through(c, pods[0])
	c.counter(t, fresh)
	second, _ := c.buildOf(fresh.id, pods...)
	if second == first {
		t.Errorf("a sandbox made after a rolling upgrade runs in the programs of the old version, %s", first)
	}
	for _, p := range pods {
		if got := c.builds(p); !slices.Contains(got, second) {
			t.Errorf("%s keeps the programs %v, and its own are %s", p, got, second)
		}
	}
	if _, err := fresh.Destroy(t.Context(), fresh.id, true); err != nil {
		t.Fatal(err)
	}
	r.add(t, "the programs that those sandboxes run in, on upgraded nodes", "all "+strconv.Itoa(len(boxes))+" in those of the old version, "+short(first)+", kept on the volumes; a new sandbox runs in "+short(second))
}

// prepare makes the namespace, a database, its Secret and the volumes.
func (c *cluster) prepare() {
	c.t.Helper()
	c.run("kubectl", "create", "namespace", "hutch")
	u, err := url.Parse(pgtest.New(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	c.forward("5432", u.Host)
	u.Host = address + ":5432"
	key, err := age.GenerateX25519Identity()
	if err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("create", "secret", "generic", "hutch", "--from-literal=store="+u.String(), "--from-literal=secret-key="+key.String(), "--from-literal=token="+token)
	for i := range 3 {
		c.sh(fmt.Sprintf("mkdir volumes/%d", i))
		c.apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"volume-%[1]d"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
"local":{"path":"%[2]s/volumes/%[1]d"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["%[3]s"]}]}]}}}}`, i, c.dir, machine))
	}
	c.kubectl("label", "node", machine, "--overwrite", "kubernetes.io/hostname="+machine)
}

// profile installs the profile of system calls as the documentation says, in the folder of this kubelet.
func (c *cluster) profile() {
	c.t.Helper()
	manifest := string(read(c.t, folder+"/manifests/seccomp.yaml"))
	manifest = strings.NewReplacer("/var/lib/kubelet/seccomp", c.path("kubelet/seccomp"), "hutch:latest", "localhost/hutch:1", "IfNotPresent", "Never").Replace(manifest)
	c.apply(manifest)
	want := string(read(c.t, chart+"/seccomp/hutch.json"))
	c.eventually("the profile is there", func() bool {
		got, err := os.ReadFile(c.path("kubelet/seccomp/hutch.json"))
		return err == nil && strings.TrimSpace(string(got)) == strings.TrimSpace(want)
	})
}

// restricted asks the API whether the pods of a preset are within the strictest of the Pod Security Standards.
func (c *cluster) restricted(t *testing.T, r *report) {
	t.Helper()
	c.run("kubectl", "create", "namespace", "strict")
	c.run("kubectl", "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
	c.run("kubectl", "-n", "strict", "create", "serviceaccount", "hutch")
	for name, preset := range presets(t) {
		set := find[apps.StatefulSet](t, render(t, "hutch", "strict", preset))
		pod := core.Pod{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta.ObjectMeta{Name: "pod", Namespace: "strict"}, Spec: set.Spec.Template.Spec}
		pod.Spec.Volumes = append(pod.Spec.Volumes, core.Volume{Name: "data", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}})
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		c.write("pod.json", string(text))
		_, err = c.try("kubectl", "create", "--dry-run=server", "-f", c.path("pod.json"))
		came := "taken"
		if err != nil {
			_, came, _ = strings.Cut(strings.TrimSpace(err.Error()), "violates PodSecurity ")
			came = "refused: " + came
		}
		if (err == nil) != (name == "unprivileged") {
			t.Errorf("a pod of the preset %s: %v", name, err)
		}
		r.add(t, "a namespace with the Pod Security Standard restricted, the preset "+name, came)
	}
}

// confined checks from inside a pod that it is confined as the manifest says.
func (c *cluster) confined(t *testing.T, r *report) {
	t.Helper()
	status := c.kubectl("exec", "hutch-0", "--", "cat", "/proc/1/status")
	for _, want := range []string{"Uid:\t1000\t", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("a pod's first process has no %q:\n%s", want, status)
		}
	}
	if out, err := c.try("kubectl", "-n", "hutch", "exec", "hutch-0", "--", "sh", "-c", "echo x >/usr/x"); err == nil {
		t.Errorf("a pod can write its root: %s", out)
	}
	if out, err := c.try("kubectl", "-n", "hutch", "exec", "hutch-0", "--", "ls", "/var/run/secrets/kubernetes.io"); err == nil {
		t.Errorf("a pod has a token: %s", out)
	}
	calls := c.kubectl("exec", "hutch-0", "--", "perl", "-e", `
my %calls = (bpf => 321, keyctl => 250, io_uring_setup => 425, userfaultfd => 323, perf_event_open => 298, kexec_load => 246, init_module => 175);
for (sort keys %calls) { print "$_ ", syscall($calls{$_}, 0, 0, 0, 0, 0), " ", $! + 0, "\n" }
`)
	for line := range strings.Lines(calls) {
		words := strings.Fields(line)
		if words[1] != "-1" || words[2] != "1" && words[2] != "38" {
			t.Errorf("a pod can call %s", line)
		}
	}
	r.add(t, "a pod is user 1000 with no capability, no new privileges, our profile, a read-only root and no token of the cluster", "yes")
	doctor, err := c.try("kubectl", "-n", "hutch", "exec", "hutch-0", "--", "hutch", "doctor")
	if !strings.Contains(doctor, "gvisor: works") {
		t.Fatalf("hutch doctor: %v\n%s", err, doctor)
	}
	if !strings.Contains(doctor, "resources.limits") {
		t.Errorf("hutch doctor has no fixes for pods:\n%s", doctor)
	}
	t.Log(doctor)
	r.add(t, "`hutch doctor` in it", "gvisor works, with fixes for pods")
}

// box is a sandbox with a process that counts in memory.
type box struct {
	*client.Client
	id  string
	pid string
	was int
}

func (b *box) through(c *cluster, pod string) {
	b.Client = client.New("http://"+c.podIP(pod)+":7700", token)
}

func (b *box) sh(t *testing.T, command string) (string, error) {
	t.Helper()
	res, err := b.Exec(t.Context(), b.id, hutch.ExecRequest{Command: command}, nil)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%d: %s", res.ExitCode, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout)), err
}

// stillThere: the process is the same, and continues to count from where it was.
func (b *box) stillThere(t *testing.T, after string) {
	t.Helper()
	pid, err := b.sh(t, "pgrep -o -f '[c]ount=0'")
	if err != nil || pid != b.pid {
		t.Fatalf("%s: the process of %s is %q and was %q: %v", after, b.id, pid, b.pid, err)
	}
	count := func() int {
		text, err := b.sh(t, "cat /workspace/count")
		n, _ := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %s: %v", after, b.id, err)
		}
		return n
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		n := count()
		if n > b.was {
			b.was = n
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s counts no further than %d, and was at %d", after, b.id, n, b.was)
		}
	}
}

// fill makes sandboxes until each node has one.
func (c *cluster) fill(t *testing.T, r *report) (boxes []*box) {
	t.Helper()
	for i := range 6 {
		b := &box{id: fmt.Sprint("box-", i)}
		b.through(c, fmt.Sprint("hutch-", i%3))
		if runtime, took := c.counter(t, b); i == 0 {
			r.add(t, "the first sandbox, on "+runtime, took)
		}
		boxes = append(boxes, b)
	}
	list := c.kubectl("exec", "hutch-0", "--", "hutch", "node", "ls")
	t.Log(list)
	return boxes
}

// counter makes a sandbox with a process that counts.
func (c *cluster) counter(t *testing.T, b *box) (runtime, took string) {
	t.Helper()
	begin := time.Now()
	sb, err := b.Create(t.Context(), hutch.CreateRequest{ID: b.id, Limits: hutch.Limits{Memory: 256}})
	if err != nil {
		t.Fatal(err)
	}
	took = since(begin)
	if kernel, err := b.sh(t, "dmesg | head -3; uname -r"); err != nil {
		t.Fatalf("%s: %v", kernel, err)
	}
	if _, err := b.StartProcess(t.Context(), b.id, hutch.ProcessRequest{Name: "counter",
		Command: "count=0; while :; do count=$((count + 1)); echo $count >/workspace/.new; mv /workspace/.new /workspace/count; sleep 0.2; done"}); err != nil {
		t.Fatal(err)
	}
	var pid string
	c.eventually("the counter runs", func() bool {
		pid, err = b.sh(t, "pgrep -o -f '[c]ount=0'")
		return err == nil && pid != ""
	})
	b.pid = pid
	return sb.Runtime, took
}

// drain empties the machine: pods are evicted one after the other, and the eviction of a second pod is refused while
// the first is away.
func (c *cluster) drain(t *testing.T, r *report) {
	t.Helper()
	begin := time.Now()
	c.run("kubectl", "cordon", machine)
	c.kubectl("delete", "pod", "hutch-2") // the pod cannot come back while the machine accepts no pods
	out, err := c.try("kubectl", "drain", machine, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=20s")
	if err == nil || !strings.Contains(out+err.Error(), "disruption budget") {
		t.Errorf("a drain with one node away: %s %v", out, err)
	}
	r.add(t, "`kubectl drain` while one node is away", "waits: the disruption budget lets one be away")
	c.run("kubectl", "uncordon", machine)
	c.podIP("hutch-2")
	r.add(t, "back after `uncordon`", since(begin))
}

// kill ends a pod without warning. The running sandboxes of its node lose their processes; those that slept there are
// whole.
func (c *cluster) kill(t *testing.T, r *report, boxes []*box, pods []string) {
	t.Helper()
	asleep := boxes[0]
	asleep.through(c, "hutch-0")
	if _, err := asleep.Hibernate(t.Context(), asleep.id, hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes[1:] {
		if out, err := b.sh(t, "echo kept >/workspace/kept; sync"); err != nil {
			t.Fatal(out, err)
		}
	}
	begin := time.Now()
	for _, p := range pods {
		id := c.kubectl("get", "pod", p, "-o", "jsonpath={.metadata.uid}")
		// Every process of the pod, at once.
		c.sh(`for f in /proc/[0-9]*/cgroup; do if grep -q "` + id + `" "$f" 2>/dev/null; then p=${f#/proc/}; kill -KILL "${p%/cgroup}" 2>/dev/null || true; fi; done`)
	}
	c.eventually("the pods are noticed and started again", func() bool {
		out, err := c.try("kubectl", "-n", "hutch", "get", "pods", "-l", "app.kubernetes.io/name=hutch", "-o", `jsonpath={range .items[*]}{.status.containerStatuses[0].restartCount},{.status.containerStatuses[0].ready} {end}`)
		return err == nil && strings.Count(out, ",true") == 3 && !strings.Contains(out, "0,")
	})
	for _, p := range pods {
		c.podIP(p)
	}
	r.add(t, "all processes of all pods killed at once; ready again", since(begin))
	asleep.through(c, "hutch-1")
	asleep.stillThere(t, "after the kill")
	r.add(t, "a sandbox that slept", "there, with its processes")
	kept, gone := 0, 0
	var states []string
	for _, b := range boxes[1:] {
		b.through(c, "hutch-0")
		out, err := b.sh(t, "cat /workspace/kept")
		if err == nil && out == "kept" {
			kept++
		} else {
			gone++
			states = append(states, fmt.Sprint(err))
		}
	}
	if len(states) > 0 {
		t.Log(states)
	}
	r.add(t, "sandboxes that ran", fmt.Sprintf("%d of %d have their files, none its processes", kept, kept+gone))
}

// TestPrivileged: a node of the privileged preset, with no volume. Native works, with limits, and a pod that is gone is replaced.
func TestPrivileged(t *testing.T) {
	if !inside(t) {
		return
	}
	var r report
	c := newCluster(t)
	c.prepare()
	c.run("kubectl", "label", "node", machine, "hutch=true")
	c.apply(render(t, "root", "hutch", presets(t)["privileged"], small, values{"replicas": 1, "persistence": values{"enabled": false}}))
	for _, round := range []string{"the privileged preset", "the privileged preset, with its pod and its emptyDir killed and replaced"} {
		b := &box{id: "native"}
		b.through(c, "root-0")
		sb, err := b.Create(t.Context(), hutch.CreateRequest{ID: b.id, Runtime: "native", Limits: hutch.Limits{Memory: 64}})
		if err != nil {
			doctor, _ := c.try("kubectl", "-n", "hutch", "exec", "root-0", "--", "hutch", "doctor")
			t.Fatalf("%s: %v\n%s", round, err, doctor)
		}
		out, err := b.sh(t, "id -u; ls /sys/class/net | wc -l")
		if err != nil {
			t.Fatalf("%s: %s %v", round, out, err)
		}
		res, err := b.Exec(t.Context(), b.id, hutch.ExecRequest{Command: "head -c 200M /dev/zero | tail >/dev/null"}, nil)
		if err == nil && res.ExitCode == 0 {
			t.Errorf("%s: a sandbox of 64 MiB holds 200 MiB", round)
		}
		r.add(t, round, "runs a sandbox on "+sb.Runtime+", whose limit of memory holds")
		c.kubectl("delete", "pod", "root-0", "--grace-period=0", "--force")
		c.eventually("another pod is there", func() bool {
			out, err := c.try("kubectl", "-n", "hutch", "get", "pod", "root-0", "-o", "jsonpath={.status.containerStatuses[0].ready} {.metadata.deletionTimestamp}")
			return err == nil && out == "true "
		})
	}
	doctor, err := c.try("kubectl", "-n", "hutch", "exec", "root-0", "--", "hutch", "doctor")
	if !strings.Contains(doctor, "native: works") || !strings.Contains(doctor, "gvisor: works") {
		t.Errorf("hutch doctor in a privileged pod: %v\n%s", err, doctor)
	}
	t.Log(doctor)
	r.append(t)
}

// append adds to the report of TestCluster.
func (r *report) append(t *testing.T) {
	t.Helper()
	file := os.Getenv("HUTCH_KUBERNETES_REPORT")
	if file == "" || t.Failed() {
		return
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(r.lines, "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
}

// write writes the report to the file that the caller names.
func (r *report) write(t *testing.T) {
	t.Helper()
	file := os.Getenv("HUTCH_KUBERNETES_REPORT")
	if file == "" || t.Failed() {
		return
	}
	version := func(name string, args ...string) string {
		out, _ := exec.Command(name, args...).Output()
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return line
	}
	text := "# What was seen in a cluster\n\nWritten by `make test-kubernetes`, which fails if anything here is otherwise than it should be. Times are of a busy machine of two cores.\n\n" +
		"- commit: " + version("git", "rev-parse", "--short=12", "HEAD") + "\n- " + version(os.Getenv("HUTCH_INSIDE")+"/bin/kubelet", "--version") + "\n- " + version(os.Getenv("HUTCH_INSIDE")+"/bin/containerd", "--version") + "\n- " +
		version("runc", "--version") + "\n- kernel " + version("uname", "-r") + "\n- runtime of the pods: runc; preset: unprivileged; volumes: local\n\n| what | came |\n|---|---|\n" + strings.Join(r.lines, "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
