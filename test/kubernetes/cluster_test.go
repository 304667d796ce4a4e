//go:build kubernetes

package kubernetes

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

const (
	address  = "10.77.0.1" // of the machine, in its own network
	machine  = "machine-1"
	patience = 5 * time.Minute
)

// cluster is a Kubernetes on one machine: its real programs, in namespaces of their own. Pods have addresses that
// answer, but Services do not, because there is no kube-proxy.
type cluster struct {
	t        testing.TB
	dir      string
	programs string // folder of test/kubernetes/programs
}

// inside runs the test again in namespaces of its own, so that nothing of the machine changes, and all processes end with it.
func inside(t *testing.T) bool {
	if os.Getenv("HUTCH_INSIDE") != "" {
		return true
	}
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "a cluster needs root")
	}
	out, err := exec.Command("./programs", strings.Fields(os.Getenv("HUTCH_KUBERNETES"))...).Output()
	if err != nil {
		t.Fatalf("the programs of Kubernetes: %v", err)
	}
	run := "^" + t.Name() + "$"
	if _, part, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		run += "/" + part
	}
	cmd := exec.Command("unshare", "-n", "-m", "-p", "--fork", "--mount-proc", "--propagation", "private", "tini", "--",
		os.Args[0], "-test.run", run, "-test.v", "-test.timeout", "1h")
	dir, err := os.MkdirTemp("", "hutch-k8s-") // removed when no mount holds it any more
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL runs as another user
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "HUTCH_INSIDE="+strings.TrimSpace(string(out)), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	removeGroups()
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// removeGroups removes the control groups of pods, which would stay on the machine.
func removeGroups() {
	for _, root := range []string{"kubepods", "kubepods.slice", "k8s.io"} {
		found, _ := filepath.Glob("/sys/fs/cgroup/*/" + root)
		for _, top := range append(found, "/sys/fs/cgroup/"+root) {
			exec.Command("find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run()
		}
	}
}

// newAPI returns a cluster without nodes and controllers: only its API, which may not answer yet.
func newAPI(t *testing.T) *cluster {
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t, dir, os.Getenv("HUTCH_INSIDE")}
	c.sh(`ip link set lo up && ip link add hk0 type veth peer name hk1 && ip addr add ` + address + `/24 dev hk0 && ip link set hk0 up && ip link set hk1 up && ip route add default dev hk0`)
	c.sh(`mkdir -p pki logs && mount --bind . . && mount --make-rshared .`)
	c.certificates()
	c.start("etcd", c.debian("usr/bin/etcd"), "--data-dir", c.path("etcd"), "--unsafe-no-fsync")
	c.start("kube-apiserver", c.bin("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--advertise-address="+address,
		"--tls-cert-file="+c.path("pki/server.crt"), "--tls-private-key-file="+c.path("pki/server.key"), "--client-ca-file="+c.path("pki/ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.path("pki/server.key"), "--service-account-signing-key-file="+c.path("pki/server.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+c.path("pki/ca.crt"), "--kubelet-client-certificate="+c.path("pki/admin.crt"), "--kubelet-client-key="+c.path("pki/admin.key"))
	return c
}

func newCluster(t *testing.T) *cluster {
	c := newAPI(t)
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
	})
	c.sh(`mkdir -p containerd kubelet cni seccomp volumes`)
	c.configure()
	c.eventually("the API answers", func() bool { _, err := c.try("kubectl", "get", "--raw", "/readyz"); return err == nil })
	c.start("kube-controller-manager", c.bin("kube-controller-manager"), "--kubeconfig="+c.path("controller.conf"), "--service-account-private-key-file="+c.path("pki/server.key"),
		"--root-ca-file="+c.path("pki/ca.crt"), "--use-service-account-credentials=true", "--leader-elect=false")
	c.start("kube-scheduler", c.bin("kube-scheduler"), "--kubeconfig="+c.path("scheduler.conf"), "--leader-elect=false")
	c.start("containerd", c.bin("containerd"), "--config", c.path("containerd.toml"))
	c.eventually("containerd answers", func() bool { _, err := c.try("ctr", "version"); return err == nil })
	c.images()
	c.start("kubelet", c.bin("kubelet"), "--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.path("kubelet.conf"), "--root-dir="+c.path("kubelet"), "--cert-dir="+c.path("pki"),
		"--hostname-override="+machine, "--node-ip="+address)
	c.eventually("the machine is ready", func() bool {
		out, _ := c.try("kubectl", "get", "node", machine, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return out == "True"
	})
	return c
}

func (c *cluster) path(name string) string   { return filepath.Join(c.dir, name) }
func (c *cluster) bin(name string) string    { return filepath.Join(c.programs, "bin", name) }
func (c *cluster) debian(name string) string { return filepath.Join(c.programs, "debian", name) }

// start starts a program, which ends with the namespace of processes.
func (c *cluster) start(name, program string, args ...string) {
	c.t.Helper()
	log, err := os.Create(c.path("logs/" + name))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "PATH="+c.bin("")+":"+os.Getenv("PATH")) // containerd starts gVisor from there
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go cmd.Wait()
}

// try runs a program in the cluster's folder.
func (c *cluster) try(name string, args ...string) (string, error) {
	switch name {
	case "kubectl":
		name, args = c.bin(name), append([]string{"--kubeconfig", c.path("admin.conf")}, args...)
	case "ctr":
		name = c.bin(name)
		args = append([]string{"--address", c.path("containerd/sock"), "--namespace", "k8s.io"}, args...)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return string(out), err
}

func (c *cluster) run(name string, args ...string) string {
	c.t.Helper()
	out, err := c.try(name, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *cluster) sh(script string) string { c.t.Helper(); return c.run("sh", "-ec", script) }

// kubectl runs kubectl in the namespace of the tests.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.run("kubectl", append([]string{"-n", "hutch"}, args...)...)
}

// apply applies a manifest. A field that the API does not know is an error.
func (c *cluster) apply(manifest string, args ...string) {
	c.t.Helper()
	c.write("manifest.yaml", manifest)
	c.kubectl(append([]string{"apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", c.path("manifest.yaml")}, args...)...)
}

func (c *cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited without success: %s", what)
		}
	}
}

func (c *cluster) showLogs() {
	for _, args := range [][]string{{"get", "pods,pvc,pv", "-A", "-o", "wide"}, {"describe", "pods", "-n", "hutch"}, {"logs", "-n", "hutch", "-l", "app.kubernetes.io/name=hutch", "--tail=40", "--prefix"}} {
		out, err := c.try("kubectl", args...)
		c.t.Log(out, err)
	}
	for _, name := range []string{"kubelet", "containerd"} {
		out, _ := exec.Command("tail", "-n", "25", c.path("logs/"+name)).CombinedOutput()
		c.t.Logf("%s:\n%s", name, out)
	}
}

// certificates makes a certificate authority, and the certificates that it signs.
func (c *cluster) certificates() {
	c.t.Helper()
	key := c.key("ca")
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		SubjectKeyId: []byte{1}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	c.certificate("ca", ca, ca, key, key)
	for i, who := range []struct {
		file, name, group string
	}{
		{"server", "kube-apiserver", ""}, {"admin", "admin", "system:masters"}, {"controller", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""}, {"kubelet", "system:node:" + machine, "system:nodes"},
	} {
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: who.name, Organization: strings.Fields(who.group)},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			IPAddresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(address), net.ParseIP("10.96.0.1")}, DNSNames: []string{"kubernetes.default.svc"},
		}
		c.certificate(who.file, cert, ca, c.key(who.file), key)
		c.write(who.file+".conf", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:6443","certificate-authority":"%[1]s/pki/ca.crt"}}],
"users":[{"name":"u","user":{"client-certificate":"%[1]s/pki/%[2]s.crt","client-key":"%[1]s/pki/%[2]s.key"}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, c.dir, who.file))
	}
}

func (c *cluster) key(name string) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("pki/"+name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	return key
}

func (c *cluster) certificate(name string, cert, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) {
	der, err := x509.CreateCertificate(rand.Reader, cert, by, key.Public(), byKey)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("pki/"+name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

func (c *cluster) configure() {
	c.write("cni/net.conflist", `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","bridge":"hkpods","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"`+c.path("cni-state")+`"}}]}`)
	// Machines without CAP_SYS_RESOURCE cannot lower oom_score_adj.
	c.write("containerd.toml", fmt.Sprintf(`version = 2
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
[grpc]
address = "%[1]s/containerd/sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[2]s"
conf_dir = "%[1]s/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"
`, c.dir, c.debian("usr/lib/cni")))
	c.write("kubelet.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://%[1]s/containerd/sock
authentication: {x509: {clientCAFile: %[1]s/pki/ca.crt}, anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
tlsCertFile: %[1]s/pki/kubelet.crt
tlsPrivateKeyFile: %[1]s/pki/kubelet.key
podLogsDir: %[1]s/logs/pods
volumePluginDir: %[1]s/plugins
resolvConf: ""
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1%%, nodefs.available: 1%%, imagefs.available: 1%%}
`, c.dir))
}

// images loads the pause image, and two versions of Hutch's image, whose layers are a base system and the programs.
// Each program of the second version differs from that of the first, so sandboxes there run in another build of gVisor.
func (c *cluster) images() {
	c.t.Helper()
	c.sh(`mkdir -p pause/main && printf 'package main\n\nimport "time"\n\nfunc main() { time.Sleep(1 << 62) }\n' >pause/main/main.go && cd pause/main &&
		CGO_ENABLED=0 GOFLAGS=-mod=mod GO111MODULE=off go build -o ../pause . && tar -C .. -cf ../../pause.tar pause`)
	c.load("localhost/pause:1", map[string]any{"Entrypoint": []string{"/pause"}}, c.path("pause.tar"))
	bin := filepath.Dir(hutchtest.Program(c.t, "hutch"))
	const layer = "layer/usr/local/bin/"
	c.sh("mkdir -p " + layer)
	for _, tag := range []string{"1", "2"} {
		for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
			program := read(c.t, filepath.Join(bin, name))
			if tag == "2" {
				program = append(program, "the second version"...)
			}
			if err := os.WriteFile(c.path(layer+name), program, 0o755); err != nil {
				c.t.Fatal(err)
			}
		}
		c.sh("tar --owner=0 --group=0 -C layer -cf programs.tar .")
		c.load("localhost/hutch:"+tag, map[string]any{"Entrypoint": []string{"tini", "--", "hutch"}, "User": "1000:1000", "Labels": map[string]string{"version": tag},
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}, filepath.Join(c.programs, "base.tar"), c.path("programs.tar"))
	}
}

// load loads an image with these layers, in Docker's form.
func (c *cluster) load(name string, config map[string]any, layers ...string) {
	c.t.Helper()
	f, err := os.Create(c.path("image.tar"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	add := func(name string, size int64, from io.Reader) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			c.t.Fatal(err)
		}
		if _, err := io.Copy(w, from); err != nil {
			c.t.Fatal(err)
		}
	}
	var names, ids []string
	for i, layer := range layers {
		from, err := os.Open(layer)
		if err != nil {
			c.t.Fatal(err)
		}
		defer from.Close()
		info, err := from.Stat()
		if err != nil {
			c.t.Fatal(err)
		}
		sum := sha256.New()
		names = append(names, fmt.Sprintf("layer%d.tar", i))
		add(names[i], info.Size(), io.TeeReader(from, sum))
		ids = append(ids, fmt.Sprintf("sha256:%x", sum.Sum(nil)))
	}
	text, _ := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": config, "rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	add("config.json", int64(len(text)), bytes.NewReader(text))
	text, _ = json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": names}})
	add("manifest.json", int64(len(text)), bytes.NewReader(text))
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.run("ctr", "images", "import", c.path("image.tar"))
	os.Remove(c.path("image.tar"))
}

// forward lets pods reach an address of the machine, on a port of the cluster's network.
func (c *cluster) forward(port, to string) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		c.t.Fatal(err)
	}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				conn, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer conn.Close()
				go func() { io.Copy(conn, from); conn.(*net.TCPConn).CloseWrite() }()
				io.Copy(from, conn)
			}()
		}
	}()
}

func (c *cluster) podIP(name string) string {
	c.t.Helper()
	ip := ""
	c.eventually(name+" is ready", func() bool {
		out, _ := c.try("kubectl", "-n", "hutch", "get", "pod", name, "-o", `jsonpath={.status.podIP} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}`)
		words := strings.Fields(out)
		if len(words) != 2 || words[1] != "True" {
			return false
		}
		ip = words[0]
		resp, err := http.Get("http://" + ip + ":7700/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	return ip
}
