//go:build kubernetes

package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/driver/kubernetes"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// TestPodSandboxes runs the contract of drivers with the driver that makes a pod for each sandbox, in pods of gVisor
// and of runc. The driver has only the rights of its role, in a namespace that enforces the Pod Security Standard
// baseline.
func TestPodSandboxes(t *testing.T) {
	if !inside(t) {
		return
	}
	var r report
	c := newCluster(t)
	c.apply(string(read(t, folder+"/pods/role.yaml")), "-n", "hutch-sandboxes")
	c.apply(`{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"gvisor"},"handler":"runsc"}`)
	t.Setenv("KUBECONFIG", c.account("hutch-sandboxes", "hutch"))
	for _, class := range strings.Fields(cmp.Or(os.Getenv("HUTCH_CLASSES"), "gvisor runc")) {
		t.Run(class, func(t *testing.T) {
			begin := time.Now()
			drivertest.Run(t, c.pods(t, class))
			t.Run("Image", func(t *testing.T) { c.podOfAnImage(t, class) })
			t.Run("Outside", func(t *testing.T) { c.outside(t, class) })
			t.Run("Memory", func(t *testing.T) { c.memoryLimit(t, class, &r) })
			r.add(t, "the contract of drivers, with pods of "+class, "kept, in "+since(begin))
		})
	}
	r.append(t)
}

// create makes a sandbox that is a pod.
func (c *cluster) create(t *testing.T, class string, spec driver.Spec) (driver.Instance, *wire.Client) {
	t.Helper()
	d, err := kubernetes.New(kubernetes.Options{Dir: hutchtest.Dir(t), Pod: c.template(class)})
	if err != nil {
		t.Fatal(err)
	}
	if spec.Root.Env == nil {
		spec.Root = hutchtest.Image(t)
	}
	spec.ID, spec.Limits = "one", drivertest.Limits
	spec.Boot = wire.Boot{Token: rand.Text(), Home: spec.Root.Account().Home, Dir: spec.Root.Workdir(), Hostname: "one", Env: spec.Root.Env, MaxLive: 10}
	inst, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err, errors.Unwrap(err))
	}
	agent := wire.NewClient(inst.Dial, spec.Boot.Token)
	t.Cleanup(func() {
		agent.Close()
		if err := inst.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return inst, agent
}

func output(t *testing.T, agent *wire.Client, command string) string {
	t.Helper()
	var out strings.Builder
	_, err := agent.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: command, TimeoutMS: 60_000}, nil, func(o hutch.Output) error {
		out.Write(o.Data)
		return nil
	})
	if err != nil {
		t.Fatalf("run %q: %v", command, err)
	}
	return strings.TrimSpace(out.String())
}

// podOfAnImage: the cluster pulls an image by the digest that the server has resolved. The image needs no program of
// Hutch, and the sandbox also has its own files. If the cluster cannot pull an image, the error names it.
func (c *cluster) podOfAnImage(t *testing.T, class string) {
	const name = "registry.example/debian:12"
	c.load(name, map[string]any{"Env": []string{"PATH=/usr/bin:/bin"}}, filepath.Join(c.programs, "base.tar"))
	var digest string
	for line := range strings.Lines(c.run("ctr", "images", "ls")) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == name {
			digest = fields[2]
		}
	}
	pinned := "registry.example/debian@" + digest
	c.run("ctr", "images", "tag", "--force", name, pinned)
	ca := "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"
	root, err := image.FromEROFS(drivertest.WriteImage(t, []drivertest.ImageFile{{Path: "/etc/ssl/certs/ca-certificates.crt", Mode: 0o644}}),
		image.EROFSOptions{Env: []string{"PATH=/usr/bin:/bin", "COLOUR=red"}, WorkingDir: "/srv/app"})
	if err != nil {
		t.Fatal(err)
	}
	root.Files = append(root.Files, image.File{Path: "/usr", Mode: 0o755 | fs.ModeDir}, image.File{Path: "/usr/local", Mode: 0o755 | fs.ModeDir}, image.File{Path: "/usr/local/ours", Mode: 0o755 | fs.ModeDir}, image.File{Path: "/usr/local/ours/authority", Mode: 0o644, Content: ca})
	_, agent := c.create(t, class, driver.Spec{Image: "registry.example/debian:12@" + digest, Root: root})
	for command, want := range map[string]string{
		"cat /etc/debian_version | cut -d. -f1":                                           "12",
		"echo $COLOUR; pwd; id -u":                                                        "red\n/srv/app\n1000",
		"cat /usr/local/ours/authority":                                                   strings.TrimSpace(ca),
		"cat /etc/hostname; (echo x >/etc/hostname) 2>/dev/null || echo no":               "one\nno",
		"echo x >/workspace/f && cat /workspace/f; ls /.hutch/run 2>/dev/null || echo no": "x\nno",
	} {
		if got := output(t, agent, command); got != want {
			t.Errorf("%q gives %q, not %q", command, got, want)
		}
	}
	d, err := kubernetes.New(kubernetes.Options{Dir: hutchtest.Dir(t), Pod: c.template(class)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost/web:1@" + digest, digest} {
		if _, err := d.Create(t.Context(), driver.Spec{ID: "local", Image: name, Root: root, Limits: drivertest.Limits}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "hutch image push") {
			t.Errorf("%s: %v", name, err)
		}
	}
	missing := driver.Spec{ID: "missing", Image: "registry.example/none:1@" + digest, Root: root, Limits: drivertest.Limits, Boot: wire.Boot{Token: rand.Text(), Hostname: "missing"}}
	if _, err := d.Create(t.Context(), missing); err == nil || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "ErrImagePull") {
		t.Errorf("an image that no registry has: %v, %v", err, errors.Unwrap(err))
	}
	if n, err := d.Sweep(t.Context(), func(string) bool { return false }); n != 0 || err != nil {
		t.Errorf("%d are left, %v", n, err)
	}
}

// memoryLimit: only the command that takes all memory is ended, every time, also if it is many small programs. Files
// and other programs are still there.
func (c *cluster) memoryLimit(t *testing.T, class string, r *report) {
	inst, agent := c.create(t, class, driver.Spec{})
	ended := make(chan error, 1)
	go func() {
		ended <- inst.(driver.Guarded).GuardMemory(t.Context(), func(ctx context.Context, used int64, urgent bool) (bool, error) {
			did, err := agent.Relieve(ctx, wire.Relieve{Used: used, Urgent: urgent})
			t.Logf("at %d MiB, urgent %v: ended %v, %v", used>>20, urgent, did, err)
			return did, err
		})
	}()
	job, err := agent.Start(t.Context(), wire.Start{ID: "job", Command: "exec sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	output(t, agent, "echo kept >/workspace/file")
	c.seenMemory(t, agent)
	r.add(t, "programs in pods of "+class+" see as memory", "their limit, in `/proc/meminfo`, `free` and the files of control groups; what is free there follows what they use")
	idle, err := inst.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	now, err := inst.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.add(t, "an idle pod of "+class+", with its memory watched", fmt.Sprintf("takes %.1f %% of a core", (now.CPUSeconds-idle.CPUSeconds)*10))
	for _, greedy := range []string{"exec tail /dev/zero", "for i in $(seq 40); do (head -c 20M /dev/zero; exec sleep 1000) | tail & done; wait", "exec sort /dev/zero -S 1G"} {
		for range 3 {
			exit, err := agent.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: greedy, TimeoutMS: 60_000}, nil, nil)
			if err != nil || !exit.Memory {
				t.Fatalf("%q: %+v, %v", greedy, exit, err)
			}
			if got := output(t, agent, "cat /workspace/file; kill -0 "+fmt.Sprint(job.PID)+" && echo runs"); got != "kept\nruns" {
				t.Fatalf("after %q there is %q", greedy, got)
			}
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the guard ended: %v", err)
	default:
	}
	r.add(t, "programs that take all memory, in pods of "+class, "9 of 9 were ended alone")
}

// seenMemory: programs see their own memory limit, not the pod's or the machine's memory, and how much of it is free.
func (c *cluster) seenMemory(t *testing.T, agent *wire.Client) {
	limit := fmt.Sprint(drivertest.Limits.Memory << 20)
	for command, want := range map[string]string{
		"awk '/^MemTotal:/ { print $2 * 1024 }' /proc/meminfo":                                  limit,
		"free -b | awk '/^Mem:/ { print $2 }'":                                                  limit,
		"cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null": limit,
	} {
		if got := output(t, agent, command); got != want {
			t.Errorf("%s: %q, not %q", command, got, want)
		}
	}
	t.Logf("sysinfo shows %s bytes", output(t, agent, `python3 -c 'import os; print(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))'`))
	free := func() (mb int) {
		fmt.Sscan(output(t, agent, "free -m | awk '/^Mem:/ { print $7 }'"), &mb)
		return mb
	}
	before := free()
	if before < drivertest.Limits.Memory/2 || before > drivertest.Limits.Memory {
		t.Errorf("an idle pod has %d MiB of %d free", before, drivertest.Limits.Memory)
	}
	output(t, agent, "head -c 20M /dev/zero >/workspace/big")
	c.eventually("less memory is free", func() bool { return free() <= before-10 })
	output(t, agent, "rm /workspace/big")
	c.eventually("it is free again", func() bool { return free() > before-10 })
}

// outside: programs reach nothing of the pod and of the cluster: not its API, another pod, or the machine, although the
// cluster's network enforces no policy here. They see no token, no volume of Hutch, and no process of ours that they
// could change.
func (c *cluster) outside(t *testing.T, class string) {
	_, agent := c.create(t, class, driver.Spec{})
	pod := c.run("kubectl", "-n", "hutch-sandboxes", "get", "pod", "-l", "hutch/sandbox=one", "-o", "jsonpath={.items[0].metadata.name}")
	if got := c.run("kubectl", "-n", "hutch-sandboxes", "exec", pod, "--", "bash", "-c", "exec 3<>/dev/tcp/"+address+"/6443 && echo REACHED"); got != "REACHED\n" {
		t.Errorf("the pod itself does not reach the API: %q", got)
	}
	for _, to := range []string{address + "/6443", address + "/10250", "10.88.0.1/6443", "127.0.0.1/6443", "10.96.0.1/443"} {
		if got := output(t, agent, "timeout 3 bash -c 'exec 3<>/dev/tcp/"+to+"' 2>/dev/null && echo REACHED"); got != "" {
			t.Errorf("%s: %s", to, got)
		}
	}
	for what, command := range map[string]string{
		"a token":           "cat /var/run/secrets/kubernetes.io/serviceaccount/token",
		"the socket folder": "ls /.hutch/run /.hutch/memory /.hutch/layers",
		"the agent":         "echo x >/.hutch/agent",
		"the first process": "kill -9 1",
		"its memory":        "cat /proc/1/environ /proc/1/maps",
		"its root":          "ls /proc/1/root/",
		"what it sees":      "echo x >/proc/meminfo || echo x >/sys/fs/cgroup/memory.max || echo x >/sys/fs/cgroup/memory/memory.limit_in_bytes || umount /proc/meminfo",
		"all processes":     "for p in /proc/[0-9]*; do [ $(stat -c %u $p) = 0 ] && kill -9 ${p#/proc/} && exit 0; done; exit 1",
		"a mount":           "mount -t tmpfs none /mnt",
		"a user namespace":  "unshare -Ur true",
		"another user":      "setpriv --reuid 0 true",
	} {
		if got := output(t, agent, "("+command+") >/dev/null 2>&1 && echo REACHED"); got != "" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// account makes a service account with the role of its namespace, and returns a kubeconfig with its token.
func (c *cluster) account(namespace, name string) string {
	c.t.Helper()
	c.run("kubectl", "-n", namespace, "create", "serviceaccount", name)
	c.run("kubectl", "-n", namespace, "create", "rolebinding", name, "--role="+name, "--serviceaccount="+namespace+":"+name)
	token := strings.TrimSpace(c.run("kubectl", "-n", namespace, "create", "token", name, "--duration=4h"))
	c.write("account.conf", `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:6443","certificate-authority":"`+c.path("pki/ca.crt")+`"}}],
"users":[{"name":"u","user":{"token":"`+token+`"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`)
	return c.path("account.conf")
}

// template writes the template of pods of a runtime class.
func (c *cluster) template(class string) string {
	c.t.Helper()
	text := strings.Replace(string(read(c.t, folder+"/pods/pod.yaml")), "hutch:latest", "localhost/hutch:1", 1)
	if class == "runc" {
		text = strings.Replace(text, "  runtimeClassName: gvisor\n", "", 1)
	}
	c.write("pod-"+class+".yaml", text)
	return c.path("pod-" + class + ".yaml")
}

// pods configures the contract for pods of a runtime class.
func (c *cluster) pods(t *testing.T, class string) drivertest.Config {
	template := c.template(class)
	open := func(t *testing.T, dir string) driver.Driver {
		t.Helper()
		d, err := kubernetes.New(kubernetes.Options{Dir: dir, Pod: template})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	report := open(t, hutchtest.Dir(t)).Check(t.Context())
	t.Logf("%+v", report)
	if !report.OK {
		t.Fatalf("the driver does not work:\n%s", c.run("kubectl", "-n", "hutch-sandboxes", "get", "events"))
	}
	return drivertest.Config{
		Dir: func(t *testing.T) string { return hutchtest.Dir(t) }, New: open, Root: hutchtest.Image(t),
		Kill: func(t *testing.T, d driver.Driver, id string) {
			c.run("kubectl", "-n", "hutch-sandboxes", "delete", "pod", "-l", "hutch/sandbox="+id, "--grace-period=0", "--force")
		},
		Isolated: true, Adopts: true, Networked: class == "gvisor", HighPorts: class == "runc", Limited: strings.Fields(os.Getenv("HUTCH_LIMITED")),
	}
}

// TestServerOfPods: a server in a pod without any privilege makes sandboxes as pods of gVisor, over the public API:
// with files, network rules, a pool and a sleep, and finds them again after it was killed.
func TestServerOfPods(t *testing.T) {
	if !inside(t) {
		return
	}
	var r report
	c := newCluster(t)
	c.prepare()
	c.run("kubectl", "label", "--overwrite", "namespace", "hutch", "pod-security.kubernetes.io/enforce=restricted")
	c.apply(string(read(t, folder+"/pods/role.yaml")), "-n", "hutch-sandboxes")
	c.apply(`{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"gvisor"},"handler":"runsc"}`)
	manifest := strings.NewReplacer("hutch:latest", "localhost/hutch:1", "storage: 20Gi", "storage: 1Gi",
		// Services have no addresses here.
		"          env:\n", "          env:\n            - {name: KUBERNETES_SERVICE_HOST, value: "+address+"}\n            - {name: KUBERNETES_SERVICE_PORT, value: \"6443\"}\n            - {name: HUTCH_POOL, value: \"1\"}\n",
	).Replace(string(read(t, folder+"/pods/server.yaml")))
	for _, doc := range strings.Split(manifest, "\n---\n")[1:] {
		namespace := "hutch"
		if strings.Contains(doc, "namespace: hutch-sandboxes\nroleRef") {
			namespace = "hutch-sandboxes"
		}
		c.apply(doc, "-n", namespace)
	}
	const pod = "hutch-pods-0"
	defer func() {
		if t.Failed() {
			out, _ := c.try("kubectl", "-n", "hutch", "logs", pod, "--tail=60")
			t.Log(out)
		}
	}()
	svc := client.New("http://"+c.podIP(pod)+":7700", token)
	defer svc.Close()
	l, err := net.Listen("tcp", address+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))

	begin := time.Now()
	network := hutch.Network{Allow: hutch.Rules(address + ":8080")}
	sb, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "one", Limits: hutch.Limits{Memory: 256, CPU: 0.5}, Network: network})
	if err != nil {
		t.Fatal(err)
	}
	r.add(t, "a server without privileges makes a sandbox as a pod of gVisor", since(begin)+", runtime "+sb.Runtime)
	b := &box{Client: svc, id: "one"}
	want := func(command, want string) {
		t.Helper()
		if got, err := b.sh(t, command); err != nil || got != want {
			t.Fatalf("%s: %q, %v; want %q", command, got, err, want)
		}
	}
	const fetch = "timeout 10 bash -c 'exec 3<>/dev/tcp/" + address + "/%d && printf \"GET / HTTP/1.0\\r\\n\\r\\n\" >&3 && tail -n 1 <&3' 2>/dev/null || echo refused"
	want(fmt.Sprintf(fetch, 8080), "hello")
	want(fmt.Sprintf(fetch, 6443), "refused")
	r.add(t, "its network rules", "it reaches what they allow, and not the API of the cluster")
	if res, err := svc.Exec(t.Context(), "one", hutch.ExecRequest{Command: "exec tail /dev/zero", Timeout: 60}, nil); err != nil || res.Limit != "memory" {
		t.Fatalf("a program that takes all memory: %+v, %v", res, err)
	}

	want("echo kept >/workspace/file; cat /workspace/file", "kept")
	job, err := svc.StartProcess(t.Context(), "one", hutch.ProcessRequest{Command: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl("exec", pod, "--", "sh", "-c", "kill -9 $(pgrep -o -x hutch)")
	time.Sleep(time.Second)
	b.Client = client.New("http://"+c.podIP(pod)+":7700", token)
	defer b.Client.Close()
	if p, err := b.Process(t.Context(), "one", job.ID); err != nil || !p.Status.Live() {
		t.Errorf("after the server was killed the process is %+v, %v", p, err)
	}
	want("cat /workspace/file", "kept")
	want(fmt.Sprintf(fetch, 8080), "hello")
	r.add(t, "the server is killed", "its sandboxes, their processes and their network are there again")

	if err := b.Signal(t.Context(), "one", job.ID, 9); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	if sb, err := b.Hibernate(t.Context(), "one", hutch.HibernateRequest{}); err != nil || sb.Status != hutch.Stopped {
		t.Fatalf("put to sleep: %+v, %v", sb, err)
	}
	c.eventually("the pod of a stopped sandbox is gone", func() bool {
		return c.run("kubectl", "-n", "hutch-sandboxes", "get", "pods", "-l", "hutch/sandbox=one", "-o", "name") == ""
	})
	want("cat /workspace/file", "kept")
	r.add(t, "a sandbox that was stopped, and used again", "had no pod, and has its files, in "+since(begin))
	begin = time.Now()

	c.eventually("a pod is ready in the pool", func() bool {
		state, err := b.Pool(t.Context())
		return err == nil && state.Ready > 0
	})
	r.add(t, "a pod is ready in the pool", since(begin))
	begin = time.Now()
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "two"}); err != nil {
		t.Fatal(err)
	}
	r.add(t, "a sandbox from the pool of ready pods", time.Since(begin).Round(time.Millisecond).String())
	b.id = "two"
	want("hostname; hostname -i", "two\n127.0.0.1")
	for _, id := range []string{"one", "two"} {
		if _, err := b.Destroy(t.Context(), id, true); err != nil {
			t.Error(err)
		}
		if out := c.run("kubectl", "-n", "hutch-sandboxes", "get", "pods", "-l", "hutch/sandbox="+id, "-o", "name"); out != "" {
			t.Errorf("the destroyed sandbox %s left %s", id, out)
		}
	}
	r.append(t)
}
