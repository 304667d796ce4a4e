// Package gofer serves the image's files to a gVisor sandbox, from a program that can do nothing else. gVisor's own
// gofer is a role of runsc. There, each gofer holds the tables of a whole kernel that it does not use: 2.5 MB for every
// sandbox. So hutch-runsc sets up the gofer's file system, drops its privileges, and becomes hutch-gofer.
package gofer

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/pinring"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/runsc/fsgofer"
	"gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// Service describes the gofer's work. It is the last argument of the program, and the sockets that it names are open.
type Service struct {
	Root   string // the served folder, relative to the root of the process
	Mounts []Mount
	Files  fsgofer.Config
	Filter filter.Options
	Exit   int // descriptor of the sandbox's process, whose end ends the gofer; -1 for none
}

// Mount is a part of the image, with the socket of its client.
type Mount struct {
	Socket   int
	Path     string
	ReadOnly bool
}

// Encode returns the program argument that describes the gofer's work.
func (s Service) Encode() (string, error) {
	text, err := json.Marshal(s)
	return string(text), err
}

// Decode reads the output of Encode.
func Decode(arg string) (s Service, err error) {
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return s, fmt.Errorf("read what to serve: %w", err)
	}
	return s, nil
}

// Run serves until the sandbox ends. The process has only the capabilities that it needs, and its working directory
// is the folder of its own open files.
func (s Service) Run() error {
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	server, err := s.prepare()
	if err != nil {
		return err
	}
	// From here on, the process can do only its own work.
	if err := confine(s.Filter); err != nil {
		return fmt.Errorf("install the filter of system calls: %w", err)
	}
	if err := s.serve(server); err != nil {
		return err
	}
	if s.Exit >= 0 {
		pinring.WaitExit(s.Exit, 500*time.Millisecond)
	}
	return nil
}

func (s *Service) prepare() (*lisafs.Server, error) {
	s.Files.RUID, s.Files.EUID = unix.Getuid(), unix.Geteuid()
	s.Files.RGID, s.Files.EGID = unix.Getgid(), unix.Getegid()
	unix.Umask(0) // the sandbox has applied its own umask
	if err := fsgofer.OpenProcSelfFD("."); err != nil {
		return nil, err
	}
	if err := unix.Chroot(s.Root); err != nil {
		return nil, fmt.Errorf("change the root to %s: %w", s.Root, err)
	}
	return lisafs.NewServer(), unix.Chdir("/")
}

func (s Service) serve(server *lisafs.Server) error {
	for _, m := range s.Mounts {
		socket, err := unet.NewSocket(m.Socket)
		if err != nil {
			return fmt.Errorf("serve %s: %w", m.Path, err)
		}
		conn, err := server.CreateConnection(socket, m.Path, fsgofer.ConnectionOpts(m.ReadOnly), fsgofer.NewConnectionImpl(&s.Files))
		if err != nil {
			return fmt.Errorf("serve %s: %w", m.Path, err)
		}
		server.StartConnection(conn)
	}
	server.Wait()
	server.Destroy()
	return nil
}
