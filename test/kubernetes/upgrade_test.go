//go:build kubernetes

package kubernetes

import (
	"context"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"hutch"
	"hutch/internal/hutchtest/s3"
)

// This file's name is after nodes_test.go: tests run in the order of their files, and TestCluster truncates REPORT.md.

// builds returns the names of the programs of gVisor sandboxes that a node keeps on its volume.
func (c *cluster) builds(pod string) []string {
	c.t.Helper()
	return strings.Fields(c.kubectl("exec", pod, "--", "sh", "-c", "cd /var/lib/hutch/data/server/builds && ls -d p*c*-*"))
}

// buildOf returns the programs that a sandbox runs in now, as the machine sees them, and the pod of the sandbox. Only
// one pod runs it.
func (c *cluster) buildOf(id string, pods ...string) (build, pod string) {
	c.t.Helper()
	for _, p := range pods {
		programs := c.kubectl("exec", p, "--", "sh", "-c", `for p in $(pgrep -f "[b]oot --bundle=.*/`+id+` "); do readlink /proc/$p/exe; done`)
		for _, program := range strings.Fields(programs) {
			if path.Base(program) != "hutch-runsc" || pod != "" {
				c.t.Fatalf("the sandbox %s runs in %q in %s, and in %q in %s", id, programs, p, build, pod)
			}
			build, pod = path.Base(path.Dir(program)), p
		}
	}
	if pod == "" {
		c.t.Fatalf("no pod of %v runs the sandbox %s", pods, id)
	}
	return build, pod
}

// short returns a build's name for the report.
func short(build string) string { return "`" + build[:min(len(build), 14)] + "`" }

// TestUpgradeThroughBucket: while a rolling upgrade is half done, a sandbox that slept on the old pod wakes on the
// upgraded one, and the other way round. The upgraded pod has never had the programs that saved the sandbox, and
// fetches them from the bucket.
func TestUpgradeThroughBucket(t *testing.T) {
	s3.Install(t) // while there is still a network
	if !inside(t) {
		return
	}
	var r report
	c := newCluster(t)
	c.prepare()
	c.profile()
	service := s3.Start(t)
	c.forward("9000", service.Host)
	c.kubectl("patch", "secret", "hutch", "-p", `{"stringData":{"access-key-id":"`+s3.KeyID+`","secret-access-key":"`+s3.Key+`"}}`)
	c.apply(render(t, "hutch", "hutch", small, values{"replicas": 2, "bucket": values{"url": "s3://hutch/fleet?region=us-east-1&endpoint=http://" + address + ":9000"}}))
	const old, upgraded = "hutch-0", "hutch-1"
	c.podIP(old)
	c.podIP(upgraded)
	c.eventually("two nodes are one fleet", func() bool {
		out, err := c.try("kubectl", "-n", "hutch", "exec", old, "--", "hutch", "node", "ls")
		return err == nil && strings.Count(out, " ready ") == 2
	})
	node := func(verb, name string) { t.Log(c.kubectl("exec", old, "--", "hutch", "node", verb, name)) }
	counterOn := func(id, pod, other string) *box {
		node("cordon", other)
		b := &box{id: id}
		b.through(c, pod)
		c.counter(t, b)
		node("uncordon", other)
		return b
	}
	forth := counterOn("forth", old, upgraded)
	first, _ := c.buildOf(forth.id, old)

	c.kubectl("patch", "statefulset", "hutch", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}}}`)
	c.kubectl("set", "image", "statefulset/hutch", "hutch=localhost/hutch:2")
	c.kubectl("rollout", "status", "statefulset/hutch", "--timeout=10m")
	c.podIP(upgraded)
	for pod, image := range map[string]string{old: "localhost/hutch:1", upgraded: "localhost/hutch:2"} {
		if got := c.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.containers[0].image}"); got != image {
			t.Fatalf("%s has the image %s", pod, got)
		}
	}
	list := c.builds(upgraded)
	if len(list) != 1 || list[0] == first {
		t.Fatalf("the upgraded node keeps the programs %v; those of the other version are %s", list, first)
	}
	second := list[0]
	back := counterOn("back", upgraded, old)
	if build, _ := c.buildOf(back.id, upgraded); build != second {
		t.Fatalf("a new sandbox of the upgraded node runs in %s", build)
	}

	forth.asleep(t)
	begin := time.Now()
	node("drain", old)
	forth.through(c, upgraded)
	forth.stillThere(t, "on the upgraded node")
	if build, pod := c.buildOf(forth.id, old, upgraded); build != first || pod != upgraded {
		t.Errorf("the sandbox of the old version runs in %s in %s", build, pod)
	}
	if got := c.builds(upgraded); !slices.Contains(got, first) || !slices.Contains(got, second) {
		t.Errorf("the upgraded node has the programs %v", got)
	}
	r.add(t, "half of an upgrade with a bucket: a sandbox that slept on the pod of the old version, whose node is drained",
		"is on the upgraded pod in "+since(begin)+", with its process and what that had in memory. It runs in "+short(first)+", which came from the bucket: that pod's own programs are "+short(second))

	node("uncordon", old)
	back.asleep(t)
	begin = time.Now()
	node("drain", upgraded)
	for _, b := range []*box{back, forth} {
		b.through(c, old)
		b.stillThere(t, "back on the old node")
	}
	if build, pod := c.buildOf(back.id, old, upgraded); build != second || pod != old {
		t.Errorf("the sandbox of the newer version runs in %s in %s", build, pod)
	}
	r.add(t, "the other way round: a sandbox of the upgraded pod, whose node is drained", "is on the pod of the old version in "+since(begin)+", as it was, in "+short(second)+" from the bucket")
	if names := objects(t.Context(), service, "/build-"); len(names) != 2 {
		t.Errorf("the bucket has the programs %v", names)
	}

	node("uncordon", upgraded)
	c.kubectl("patch", "statefulset", "hutch", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	c.kubectl("rollout", "status", "statefulset/hutch", "--timeout=10m")
	for _, pod := range []string{old, upgraded} {
		c.podIP(pod)
	}
	for _, b := range []*box{back, forth} {
		b.through(c, upgraded)
		b.stillThere(t, "after the whole upgrade")
	}
	r.add(t, "after the whole upgrade with a bucket", "both sandboxes there, with their processes and what those had in memory")
	r.append(t)
}

// objects returns the names of the objects in the bucket.
func objects(ctx context.Context, service *s3.Service, containing string) (names []string) {
	for o := range service.Client.ListObjects(ctx, "hutch", minio.ListObjectsOptions{Recursive: true}) {
		if strings.Contains(o.Key, containing) {
			names = append(names, o.Key)
		}
	}
	return names
}

// asleep puts a sandbox to sleep, with its memory.
func (b *box) asleep(t *testing.T) {
	t.Helper()
	if sb, err := b.Hibernate(t.Context(), b.id, hutch.HibernateRequest{}); err != nil || sb.Status != hutch.Hibernated {
		t.Fatalf("%s: %+v %v", b.id, sb, err)
	}
}
