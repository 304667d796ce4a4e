package docker_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/dockerd"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// TestSecretsAndTheWayToThem: the engine does not know the token or the environment, and the user inside has no access
// to the folder of the socket between daemon and agent, to the engine, or to a device.
func TestSecretsAndTheWayToThem(t *testing.T) {
	host := dockerd.StartHere(t).Host
	t.Setenv("DOCKER_HOST", host)
	const token, secret = "token-of-the-agent", "secret-of-the-owner"
	root := hutchtest.Image(t)
	inst, err := newDriver(t, hutchtest.Dir(t)).Create(t.Context(), driver.Spec{
		ID: "one", Root: root, Limits: hutch.Limits{CPU: 1, Memory: 128, Disk: 16, PIDs: 64, Processes: 4}, Network: true,
		Boot: wire.Boot{Token: token, Home: image.Home, Dir: image.Workspace, Hostname: "one", Env: append(root.Env, "KEY="+secret), MaxLive: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(context.Background())
	agent := wire.NewClient(inst.Dial, token)
	defer agent.Close()
	for command, want := range map[string]string{
		"echo $KEY": secret,
		"ls /.hutch/private 2>&1 | grep -c denied":                                                                                         "1",
		"cat /proc/1/environ /proc/1/fd/0 2>/dev/null | wc -c":                                                                             "0",
		"find / -xdev -name '*.sock' 2>/dev/null; ls /run /var/run 2>/dev/null | grep docker; true":                                        "",
		"cat /dev/net/tun 2>/dev/null; mknod /tmp/disk b 254 0 2>/dev/null && echo made; ls /dev/vda /dev/sda /dev/kmsg 2>/dev/null; true": "",
		"grep Seccomp: /proc/self/status | cut -f2":                                                                                        "2",
		"unshare -U true 2>/dev/null && echo made; true":                                                                                   "",
	} {
		if got := run(t, agent, command); got != want {
			t.Errorf("%q gives %q, not %q", command, got, want)
		}
	}
	found, err := dockerd.Client(t, host).ContainerInspect(t.Context(), containerOf(t, host), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(found.Raw, []byte(token)) || bytes.Contains(found.Raw, []byte(secret)) {
		t.Error("the engine keeps a secret of the sandbox")
	}
}

func run(t *testing.T, agent *wire.Client, command string) string {
	t.Helper()
	var out strings.Builder
	_, err := agent.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: command, TimeoutMS: 60_000}, nil, func(o hutch.Output) error {
		out.Write(o.Data)
		return nil
	})
	if err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	return strings.TrimSpace(out.String())
}

// containerOf returns the only container of an engine.
func containerOf(t *testing.T, host string) string {
	t.Helper()
	all, err := dockerd.Client(t, host).ContainerList(t.Context(), client.ContainerListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("%d containers, %v", len(all.Items), err)
	}
	return all.Items[0].ID
}
