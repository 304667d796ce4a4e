package inside

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/driver/memguard"
)

// pod is the first process of the container.
type pod struct {
	booting sync.Mutex
	booted  bool
	ended   chan error // receives the end of the agent

	packing sync.Mutex // held while files are packed

	mu      sync.Mutex
	keeper  *net.UnixConn   // connection to the second process: see keep
	folders []string        // folders of the user
	limits  memguard.Limits // see report
	limit   int64           // limit of the programs' memory
	own     int64           // the memory in use without programs
	meminfo *os.File        // the file that programs see as /proc/meminfo; nil for none
	shown   string          // the content of meminfo
	device  *os.File        // the network; nil for none
	memory  int             // descriptor of the written files' file system; -1 until it exists
	holder  net.Conn        // the stream that has the device
	taken   *sync.Cond      // signals that holder has changed
}

// Pod serves relays until the agent ends.
func Pod() error {
	for _, dir := range []string{filepath.Dir(podSocket), memoryDir, layersDir, rootDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	ln, err := net.Listen("unix", podSocket)
	if err != nil {
		return err
	}
	p := &pod{ended: make(chan error, 1), memory: -1}
	p.taken = sync.NewCond(&p.mu)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				p.ended <- fmt.Errorf("listen for relays: %w", err)
				return
			}
			go p.serve(conn)
		}
	}()
	return <-p.ended
}

// helloTime bounds how long a connection can take to send its purpose.
const helloTime = 30 * time.Second

func (p *pod) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(helloTime))
	var what [1]byte
	if _, err := conn.Read(what[:]); err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	switch what[0] {
	case ToBoot:
		var b Boot
		var reply Reply
		err := json.NewDecoder(bufio.NewReader(conn)).Decode(&b)
		if err == nil {
			reply.NoNetwork, err = p.boot(b)
		}
		reply.send(conn, err)
	case ToAgent:
		if agent, err := net.Dial("unix", agentSocket); err == nil {
			splice(conn, agent)
		}
	case ToUsage:
		json.NewEncoder(conn).Encode(p.usage())
	case ToFiles:
		out := chunks{conn}
		err := p.files(out)
		if out.end() == nil {
			Reply{}.send(conn, err)
		}
	case ToMemory:
		p.mu.Lock()
		limits := p.limits
		p.mu.Unlock()
		if limits.Soft > 0 {
			report(conn, limits, func() int64 {
				used := memoryMeter.used()
				p.showUse(used)
				return used
			})
		}
	case ToNetwork:
		p.network(conn)
	}
}

// send sends a reply. If err is not nil, the reply contains it.
func (r Reply) send(w io.Writer, err error) {
	if err != nil {
		r.Error = err.Error()
	}
	json.NewEncoder(w).Encode(r)
}

// boot starts the second process, and returns when that process is the agent.
func (p *pod) boot(b Boot) (noNetwork bool, err error) {
	p.booting.Lock()
	defer p.booting.Unlock()
	if p.booted {
		return false, errors.New("this pod has an instance already")
	}
	listener, err := listenAgent()
	if err != nil {
		return false, err
	}
	defer listener.Close()
	ours, theirs, err := controlPair()
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			ours.Close()
		}
	}()
	cmd, err := start(listener, theirs, b)
	theirs.Close()
	if err != nil {
		return false, err
	}
	p.booted = true
	go func() {
		err := cmd.Wait()
		p.ended <- fmt.Errorf("the agent ended: %v", err)
	}()
	noNetwork, err = p.receive(ours)
	own := memoryMeter.used()
	p.mu.Lock()
	p.keeper, p.folders, p.limits, p.limit, p.own = ours, b.Writable, b.Memory, b.Limit, min(own, b.Memory.Soft-b.Limit)
	p.mu.Unlock()
	return noNetwork, err
}

func listenAgent() (*os.File, error) {
	ln, err := net.Listen("unix", agentSocket)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	return ln.(*net.UnixListener).File()
}

func controlPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	file := os.NewFile(uintptr(fds[0]), "control")
	defer file.Close()
	theirs = os.NewFile(uintptr(fds[1]), "control")
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// start starts the second process in its own namespaces. It has the same ids inside as outside.
func start(listener, control *os.File, b Boot) (*exec.Cmd, error) {
	users, err := identity("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	groups, err := identity("/proc/self/gid_map")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", instanceCommand)
	cmd.Args[0] = "hutch-agent"
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(string(text))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{listener, control} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		UidMappings: users, GidMappings: groups, GidMappingsEnableSetgroups: true,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make namespaces for the instance, which takes a runtime class (gVisor, Kata) or a seccomp profile that allows user namespaces: %w", err)
	}
	return cmd, nil
}

// identity returns a map of all ids that this process has, each to itself.
func identity(path string) (ids []syscall.SysProcIDMap, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("read %s: the line %q", path, line)
		}
		first, err1 := strconv.Atoi(fields[0])
		size, err2 := strconv.Atoi(fields[2])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		ids = append(ids, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return ids, nil
}

// receive reads the report of the second process: an error, or that it is ready, with its descriptors.
func (p *pod) receive(control *net.UnixConn) (noNetwork bool, err error) {
	text, rights := make([]byte, 8<<10), make([]byte, unix.CmsgSpace(2*4))
	n, r, _, _, err := control.ReadMsgUnix(text, rights)
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, errors.New("the instance ended before it was ready")
	}
	if said := string(text[:n]); said != ready {
		return false, errors.New(said)
	}
	fds, err := descriptors(rights[:r])
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory, p.meminfo = fds[0], openMeminfo(fds[0])
	if len(fds) > 1 {
		p.device = os.NewFile(uintptr(fds[1]), "tun")
		go p.pump(p.device)
	}
	return p.device == nil, nil
}

// descriptors returns the descriptors that came with a message. Without any, it returns an error.
func descriptors(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d messages with descriptors: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds, nil
}
