//go:build kubernetes

package kubernetes

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/driver/kubernetes"
	"hutch/internal/hutchtest"
)

// TestPodSandboxes: the driver that makes a pod for each sandbox keeps the contract of drivers, in pods of gVisor and of runc, with no more
// rights than its role gives it, in a namespace that enforces the Pod Security Standard baseline.
func TestPodSandboxes(t *testing.T) {
	if !inside(t) {
		return
	}
	var r report
	c := newCluster(t)
	c.apply(string(read(t, folder + "/pods/role.yaml")), "-n", "hutch-sandboxes")
	c.apply(`{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"gvisor"},"handler":"runsc"}`)
	t.Setenv("KUBECONFIG", c.account("hutch-sandboxes", "hutch"))
	for _, class := range strings.Fields(cmp.Or(os.Getenv("HUTCH_CLASSES"), "gvisor runc")) {
		t.Run(class, func(t *testing.T) {
			begin := time.Now()
			drivertest.Run(t, c.pods(t, class))
			r.add(t, "the contract of drivers, with pods of "+class, "kept, in "+since(begin))
		})
	}
	r.append(t)
}

// account makes a service account with the role of its namespace, and returns a kubeconfig with a token of it.
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
