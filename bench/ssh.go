package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hutch"
)

// doors measures programs that reach a sandbox by SSH, next to the same work by the program hutch, and pictures of a
// screen.
func (l *lab) doors(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× hutch exec")
	if _, err := exec.LookPath("sftp"); err != nil {
		t.note("This machine has no OpenSSH: apt-get install openssh-client.")
		return t, nil
	}
	for _, f := range l.runtimes {
		if err := l.doorsOf(ctx, f.runtime, &t); err != nil {
			return t, fmt.Errorf("%s: %w", f.runtime, err)
		}
	}
	return t, ctx.Err()
}

func (l *lab) doorsOf(ctx context.Context, runtime string, t *table) (err error) {
	s, err := serve(ctx, l.dir, "doors-"+runtime, "--runtime", runtime, "--ssh", "127.0.0.1:0", "--pool", "0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	const id = "doors"
	if _, err := s.rest.Create(ctx, hutch.CreateRequest{ID: id, KeepAlive: true, Limits: hutch.Limits{Memory: 2048, CPU: 2}}); err != nil {
		return err
	}
	c := sshClient{dir: filepath.Join(l.dir, "ssh-"+runtime), hutch: filepath.Join(l.dir, "hutch"), url: s.url, host: id + ".hutch"}
	if err := c.setUp(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.run(context.WithoutCancel(ctx), "ssh", "-O", "exit", c.host)) }()
	subjects := []subject{
		{"hutch exec", func(ctx context.Context, _ int) error { return c.run(ctx, c.hutch, "exec", id, program) }},
		{"ssh", func(ctx context.Context, _ int) error {
			return c.run(ctx, "ssh", "-o", "ControlPath=none", c.host, program)
		}},
		{"ssh, over an open connection", func(ctx context.Context, _ int) error { return c.run(ctx, "ssh", c.host, program) }},
	}
	all, err := interleave(ctx, l.rounds, max(2, l.calls/10), subjects)
	if err != nil {
		return err
	}
	for i, one := range subjects {
		t.quantiles(runtime+": "+one.name, all[i], all[0])
	}
	if err := l.transfersOf(ctx, runtime, c, id, t); err != nil {
		return err
	}
	return l.screenOf(ctx, runtime, s, id, t)
}

// sshClient runs programs with a configuration of OpenSSH that hutch has written.
type sshClient struct{ dir, hutch, url, host string }

// setUp writes the configuration to a file of its own, which ssh and sftp get with -F.
func (c sshClient) setUp(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(c.dir, "home"), 0o700); err != nil {
		return err
	}
	cmd := c.command(ctx, c.hutch, "ssh-config")
	lines, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("hutch ssh-config: %w", err)
	}
	master := fmt.Sprintf("  BatchMode yes\n  ControlMaster auto\n  ControlPersist yes\n  ControlPath %s/control\n", c.dir)
	return os.WriteFile(c.config(), []byte(strings.Replace(string(lines), "  User hutch\n", "  User hutch\n"+master, 1)), 0o600)
}

func (c sshClient) config() string { return filepath.Join(c.dir, "config") }

func (c sshClient) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if name == "ssh" || name == "sftp" {
		args = append([]string{"-F", c.config()}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	home := filepath.Join(c.dir, "home")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "HUTCH_URL="+c.url, "HUTCH_TOKEN="+token)
	return cmd
}

func (c sshClient) run(ctx context.Context, name string, args ...string) error {
	cmd := c.command(ctx, name, args...)
	// A pipe would stay open as long as the connection that ssh keeps.
	said, err := os.CreateTemp(c.dir, "said-")
	if err != nil {
		return err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(said.Name())
		return fmt.Errorf("%s: %w: %.300s", filepath.Base(name), err, text)
	}
	return nil
}

// transfersOf measures a file that goes in and out, by SFTP and by hutch cp. The programs' starts are a part of it.
func (l *lab) transfersOf(ctx context.Context, runtime string, c sshClient, id string, t *table) error {
	file, back, size := filepath.Join(c.dir, "file"), filepath.Join(c.dir, "back"), max(l.bytes/4, 1<<20)
	if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	batch := func(line string) (string, error) {
		path := filepath.Join(c.dir, "batch-"+line[:3])
		return path, os.WriteFile(path, []byte(line+"\n"), 0o600)
	}
	put, err := batch(fmt.Sprintf("put %s bench-file", file))
	if err != nil {
		return err
	}
	get, err := batch(fmt.Sprintf("get bench-file %s", back))
	if err != nil {
		return err
	}
	inside := id + ":/workspace/bench-file"
	ways := []struct {
		name string
		call func() error
	}{
		{"hutch cp, in", func() error { return c.run(ctx, c.hutch, "cp", file, inside) }},
		{"sftp, in", func() error { return c.run(ctx, "sftp", "-b", put, c.host) }},
		{"hutch cp, out", func() error { return c.run(ctx, c.hutch, "cp", inside, back) }},
		{"sftp, out", func() error { return c.run(ctx, "sftp", "-b", get, c.host) }},
	}
	rates := map[string][]float64{}
	for range l.rounds {
		for _, w := range ways {
			began := time.Now()
			if err := w.call(); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rates[w.name] = append(rates[w.name], rate(size, 1, time.Since(began)))
			os.Remove(back)
		}
	}
	for i := 0; i < len(ways); i += 2 {
		cp, sftp := median(rates[ways[i].name]), median(rates[ways[i+1].name])
		t.note(fmt.Sprintf("%s: a file of %d MB: %s %s MB/s, %s %s MB/s: %s.", runtime, size>>20, ways[i].name, number(cp), ways[i+1].name, number(sftp), ratio(sftp, cp)))
	}
	return nil
}

// screenOf measures pictures of a screen of the usual size, on which nothing happens.
func (l *lab) screenOf(ctx context.Context, runtime string, s *server, id string, t *table) error {
	if _, err := exec.LookPath("Xtigervnc"); err != nil {
		t.note(runtime + ": no screen: this machine has no Xtigervnc.")
		return nil
	}
	if _, err := s.rest.StartScreen(ctx, id, hutch.ScreenRequest{}); err != nil {
		return err
	}
	all, err := interleave(ctx, l.rounds, max(2, l.calls/10), []subject{
		{"screenshot", func(ctx context.Context, _ int) error {
			_, err := s.rest.Screenshot(ctx, id, hutch.ScreenshotRequest{})
			return err
		}},
		{overREST, func(ctx context.Context, _ int) error { return runIn(ctx, s.rest, id, program) }},
	})
	if err != nil {
		return err
	}
	for i, name := range []string{"a screenshot, over REST", "exec of /bin/true, over REST"} {
		t.row(runtime+": "+name, number(all[i].at(0.5)), number(all[i].at(0.95)), number(all[i].at(0.99)), "")
	}
	return nil
}
