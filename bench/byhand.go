package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"hutch"
)

// byHand measures a sandbox that is created for one command and then destroyed. It compares Hutch with other programs,
// called as people call them, if this machine has them.
func (l *lab) byHand(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× "+bareNamespaces)
	subjects := []subject{namespaces}
	for _, find := range []func() (subject, error){bubblewrap, l.crun, runsc, docker} {
		s, err := find()
		if err == nil {
			err = s.call(ctx, 0)
		}
		if err != nil {
			t.note(fmt.Sprintf("Not measured: %v.", err))
			continue
		}
		subjects = append(subjects, s)
	}
	for _, f := range l.runtimes {
		subjects = append(subjects, subject{"Hutch, in process, " + f.runtime, func(ctx context.Context, _ int) error {
			sb, err := l.engine.Create(ctx, hutch.CreateRequest{Runtime: f.runtime})
			if err != nil {
				return err
			}
			if err := runIn(ctx, l.engine, sb.ID, program); err != nil {
				return err
			}
			_, err = l.engine.Destroy(ctx, sb.ID, true)
			return err
		}})
	}
	all, err := interleave(ctx, l.rounds, l.creates, subjects)
	if err != nil {
		return t, err
	}
	for i, s := range subjects {
		t.quantiles(s.name, all[i], all[0])
	}
	t.note("Each makes a sandbox, runs /bin/true in it and takes it away. Only Hutch's have limits, a file system to write to and an agent.")
	return t, nil
}

// command returns a subject that is a program with arguments.
func command(name string, args ...string) (subject, error) {
	path, err := exec.LookPath(args[0])
	return subject{name, func(ctx context.Context, _ int) error {
		if out, err := exec.CommandContext(ctx, path, args[1:]...).CombinedOutput(); err != nil {
			said, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
			return fmt.Errorf("%s: %w: %s", name, err, said)
		}
		return nil
	}}, err
}

func bubblewrap() (subject, error) {
	return command("bwrap, all namespaces", "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", program)
}

// runsc runs the command with gVisor's own short form.
func runsc() (subject, error) {
	return command("runsc do, systrap", "runsc", "--ignore-cgroups", "--network", "none", "do", program)
}

func docker() (subject, error) {
	return command("docker run", "docker", "run", "--rm", "--network", "none", "busybox", "true")
}

// crun runs a bundle of the host's files, read only.
func (l *lab) crun() (subject, error) {
	bundle := filepath.Join(l.dir, "bundle")
	s, err := command("crun run", "crun", "run", "--bundle", bundle, "hutch-bench")
	if err != nil {
		return s, err
	}
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return s, err
	}
	cmd := exec.Command("crun", "spec")
	cmd.Dir = bundle
	if out, err := cmd.CombinedOutput(); err != nil {
		return s, fmt.Errorf("crun spec: %w: %s", err, out)
	}
	path := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		return s, err
	}
	spec["root"] = map[string]any{"path": "/", "readonly": true}
	process := spec["process"].(map[string]any)
	process["args"], process["terminal"] = []string{program}, false
	if text, err = json.Marshal(spec); err != nil {
		return s, err
	}
	return s, os.WriteFile(path, text, 0o600)
}
