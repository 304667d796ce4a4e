package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/netaddr"
	"hutch/internal/servers"
	"hutch/internal/sshd"
)

// sshDomain ends the host names of sandboxes.
const sshDomain = "hutch"

func newSSH(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "ssh SANDBOX [COMMAND [ARG...]]", Short: "Open a sandbox with OpenSSH's client",
		Long: `Open a sandbox with the program ssh, which must be installed. The server answers
SSH if it was started with --ssh. The first call makes a key in your configuration
folder, and adds it to the server.

hutch ssh-config makes the same work with ssh itself, and with all programs that
use it: ssh SANDBOX.hutch.
` + remoteHelp,
		Example: "  hutch ssh demo\n  hutch ssh demo -- uname -a",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := hutch.CheckID(args[0]); err != nil {
				return usageError{err}
			}
			s, err := h.setUpSSH(c.Context(), sshDomain)
			if err != nil {
				return err
			}
			config := filepath.Join(s.dir, "config")
			if err := os.WriteFile(config, []byte(s.block()), 0o600); err != nil {
				return err
			}
			command := args[1:]
			if len(command) > 0 && command[0] == "--" {
				command = command[1:]
			}
			words := append([]string{"-F", config, "--", args[0] + "." + s.domain}, command...)
			return runSSH(c.Context(), std, words)
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

// runSSH replaces this process by OpenSSH's client.
func runSSH(ctx context.Context, std streams, words []string) error {
	path, err := exec.LookPath("ssh")
	if err != nil {
		return hutch.Errorf(hutch.Unsupported, "the program ssh is not installed: install OpenSSH's client (Debian: openssh-client), or use `hutch shell`")
	}
	cmd := exec.CommandContext(ctx, path, words...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.in, std.out, std.err
	var exit *exec.ExitError
	if err = cmd.Run(); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exitCode(exit.ExitCode())
	}
	return err
}

func newSSHConfig(h *home, std streams) *cobra.Command {
	var write bool
	domain := sshDomain
	c := &cobra.Command{
		Use: "ssh-config", Short: "Print or write the lines for ~/.ssh/config that make ssh SANDBOX.hutch work",
		Long: `Print the lines for ~/.ssh/config with which ssh, scp, sftp, rsync, git, VS Code
and JetBrains open a sandbox by the name SANDBOX.hutch. --write puts them there, in
the place of those of an earlier call.

The first call makes a key in your configuration folder, and adds it to the server,
which answers SSH if it was started with --ssh.
` + remoteHelp,
		Example: "  hutch ssh-config --write\n  hutch ssh-config --write --domain lab",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !sshSuffix.MatchString(domain) {
				return usageError{fmt.Errorf("the domain %q cannot be used: give a-z, 0-9 and hyphens", domain)}
			}
			s, err := h.setUpSSH(c.Context(), domain)
			if err != nil {
				return err
			}
			if !write {
				_, err = io.WriteString(std.out, s.block())
				return err
			}
			path, err := s.write()
			if err == nil {
				fmt.Fprintf(std.err, "%s now has the hosts *.%s: ssh SANDBOX.%[2]s\n", path, domain)
			}
			return err
		},
	}
	c.Flags().BoolVar(&write, "write", false, "put the lines into ~/.ssh/config")
	c.Flags().StringVar(&domain, "domain", sshDomain, "what ends the names of the sandboxes, to tell several servers apart")
	return c
}

var sshSuffix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// newSSHProxy returns the command that OpenSSH runs to connect. The host name that OpenSSH passes chooses the sandbox.
func newSSHProxy(std streams) *cobra.Command {
	return &cobra.Command{
		Use: "ssh-proxy ADDRESS NAME", Short: "Carry the connection of an SSH client (hutch ssh-config names this command)", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			id, _, _ := strings.Cut(args[1], ".")
			if err := hutch.CheckID(id); err != nil {
				return usageError{err}
			}
			var d net.Dialer
			conn, err := d.DialContext(c.Context(), "tcp", args[0])
			if err != nil {
				return hutch.Errorf(hutch.Unavailable, "%v: is the server running, with --ssh?", err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, sshd.Choice(id)); err != nil {
				return err
			}
			go func() {
				io.Copy(conn, std.in)
				conn.(*net.TCPConn).CloseWrite()
			}()
			_, err = io.Copy(std.out, conn)
			return err
		},
	}
}

// sshSetup is an SSH client's setup on this machine for a server.
type sshSetup struct {
	domain  string
	dir     string // with our key and the server's key
	address string
}

// setUpSSH makes our own key if there is none, and adds it to the server.
func (h *home) setUpSSH(ctx context.Context, domain string) (s sshSetup, err error) {
	t, err := h.target()
	if err != nil {
		return s, err
	}
	svc, err := h.dial()
	if err != nil {
		return s, err
	}
	server, err := svc.SSHServer(ctx)
	if err != nil {
		return s, err
	}
	path, err := servers.Path()
	if err != nil {
		return s, err
	}
	s = sshSetup{domain, filepath.Join(filepath.Dir(path), "ssh", domain), reachable(server.Address, t.url)}
	known, err := s.knownHosts(server.HostKey)
	if err != nil {
		return s, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s, err
	}
	key, err := s.key()
	if err != nil {
		return s, err
	}
	host, _ := os.Hostname()
	if _, err := svc.AddSSHKey(ctx, hutch.SSHKeyRequest{Key: key, Name: "hutch ssh on " + host}); err != nil {
		return s, err
	}
	return s, os.WriteFile(filepath.Join(s.dir, "known_hosts"), known, 0o600)
}

// sshAddress matches a host and a port without characters that a shell or OpenSSH's configuration interprets.
var sshAddress = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$`)

// knownHosts returns the content of a known_hosts file. The server's description of itself becomes part of a command of
// the user's shell, so it is refused unless it is an address and a key.
func (s sshSetup) knownHosts(hostKey string) ([]byte, error) {
	if !sshAddress.MatchString(s.address) {
		return nil, hutch.Errorf(hutch.Unavailable, "the server says that it answers SSH at %.100q, which is not an address: ask who runs it", s.address)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the server's own key %.100q cannot be read: ask who runs it", hostKey)
	}
	return append([]byte(s.alias()+" "), ssh.MarshalAuthorizedKey(key)...), nil
}

// reachable returns the address at which this machine reaches the server's SSH. A server that listens on loopback
// reports a loopback address, even if it is on another machine behind a proxy. The host of its URL is used then.
func reachable(address, server string) string {
	host, port, err := net.SplitHostPort(address)
	u, bad := url.Parse(server)
	if err != nil || bad != nil || !netaddr.IsLoopback(host) || netaddr.IsLoopback(u.Hostname()) {
		return address
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// key returns our public key. A missing one is made.
func (s sshSetup) key() (string, error) {
	path := filepath.Join(s.dir, "id_ed25519")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		_, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
		block, err := ssh.MarshalPrivateKey(key, "hutch ssh")
		if err != nil {
			return "", err
		}
		text = pem.EncodeToMemory(block)
		if err := durable.Create(path, text); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		if text, err = os.ReadFile(path); err != nil { // another process can have made the key first
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return "", hutch.Errorf(hutch.Invalid, "the key %s cannot be read: remove it to have a new one made", path).Because(err)
	}
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + "\n"
	return public, os.WriteFile(path+".pub", []byte(public), 0o600)
}

// alias returns the name under which the server's key is known. It is the same for all sandboxes.
func (s sshSetup) alias() string { return "sandboxes." + s.domain }

// block returns our part of OpenSSH's configuration.
func (s sshSetup) block() string {
	program, err := os.Executable()
	if err != nil {
		program = "hutch"
	}
	return fmt.Sprintf(`%s
Host *.%s
  User hutch
  ProxyCommand "%s" ssh-proxy "%s" %%n
  HostKeyAlias %s
  UserKnownHostsFile "%s"
  IdentityFile "%s"
  IdentitiesOnly yes
  ForwardAgent no
%s
`, s.mark("begin"), s.domain, escaped(program), s.address, s.alias(), escaped(filepath.Join(s.dir, "known_hosts")), escaped(filepath.Join(s.dir, "id_ed25519")), s.mark("end"))
}

// escaped returns a path for OpenSSH's configuration, where % begins a token.
func escaped(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// mark begins or ends our part of the configuration.
func (s sshSetup) mark(what string) string { return "# hutch ssh-config *." + s.domain + " " + what }

// write writes the block to the user's configuration, and replaces an earlier one. The file is replaced as a whole, and
// a link to it stays a link.
func (s sshSetup) write() (string, error) {
	user, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(user, ".ssh/config")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	changed := replaceBlock(string(old), s.mark("begin"), s.mark("end"), s.block())
	if changed == string(old) {
		return path, nil
	}
	file := path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		file = target
	}
	return path, durable.Replace(file, []byte(changed))
}

// replaceBlock replaces the lines from begin to end by a block, or adds it after all others.
func replaceBlock(text, begin, end, block string) string {
	from := strings.Index(text, begin+"\n")
	if from >= 0 {
		if n := strings.Index(text[from:], end+"\n"); n >= 0 {
			return text[:from] + block + text[from+n+len(end)+1:]
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if text != "" {
		text += "\n"
	}
	return text + block
}
