package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

// TestWhatAServerSays: a server cannot put anything but an address and a key into the files of OpenSSH.
func TestWhatAServerSays(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:2222", "[::1]:2222", "hutch.example.com:22", "a_b-c:1"} {
		got, err := sshSetup{domain: "hutch", address: address}.knownHosts(someHostKey)
		if err != nil || string(got) != "sandboxes.hutch "+someHostKey+"\n" {
			t.Errorf("%s: %q %v", address, got, err)
		}
	}
	for _, address := range []string{
		"", "host", "host:", ":22", "-oProxyCommand=x:22", "host:22; touch x", "$(touch x):22", "`x`:22", "host:22\nProxyCommand touch x", "a b:22", `"x":22`, "%h:22", "host:22#", "[::1%eth0]:22", "host:222222",
	} {
		if got, err := (sshSetup{domain: "hutch", address: address}).knownHosts(someHostKey); err == nil {
			t.Errorf("%q: %q", address, got)
		}
	}
	good := sshSetup{domain: "hutch", address: "host:22"}
	if got, err := good.knownHosts(""); err == nil {
		t.Errorf("no key: %q", got)
	}
	if got, _ := good.knownHosts(someHostKey + "\n* " + someHostKey); strings.Count(string(got), "\n") > 1 || strings.Contains(string(got), "*") {
		t.Errorf("two keys: %q", got)
	}
}

// TestWriteSSHConfig: other content of the user's file stays, and a link to the file stays a link. The file is never
// half written: the old content is there until the new content is complete.
func TestWriteSSHConfig(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	const mine = "Host other\n  User me"
	for _, folder := range []string{"/.ssh", "/dotfiles"} {
		if err := os.Mkdir(home+folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file, link, old := home+"/dotfiles/config", home+"/.ssh/config", home+"/old"
	for _, err := range []error{os.WriteFile(file, []byte(mine), 0o600), os.Symlink(file, link), os.Link(file, old)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := sshSetup{domain: "hutch", dir: filepath.Join(home, "keys"), address: "host:22"}
	for range 2 {
		if _, err := s.write(); err != nil {
			t.Fatal(err)
		}
		s.address = "host:23"
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != mine+"\n\n"+s.block() {
		t.Errorf("%q %v", got, err)
	}
	if to, err := os.Readlink(link); to != file {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if got, err := os.ReadFile(old); err != nil || string(got) != mine {
		t.Errorf("the old file was written to: %q %v", got, err)
	}
}
