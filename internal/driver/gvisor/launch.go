package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/linux/pressure"
)

// launch runs runsc to create the sandbox, in the instance's control group.
func (d *Driver) launch(ctx context.Context, p folder, program string, l hutch.Limits) error {
	var gate, log pipe
	defer gate.close()
	defer log.close()
	if err := errors.Join(gate.open(), log.open()); err != nil {
		return err
	}
	upper, err := os.Open(p.upper())
	if err != nil {
		return err
	}
	defer upper.Close()
	files, err := os.Open(p.files())
	if err != nil {
		return err
	}
	defer files.Close()
	cmd := d.runsc(p, program, l)
	cmd.ExtraFiles = []*os.File{gate.r, log.w, upper, files} // 3 to 6: see upperFile
	if err := p.start(cmd); err != nil {
		return err
	}
	gate.r.Close()
	log.w.Close()
	said := drain(log.r)
	defer func() { log.close(); <-said }()
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	err = errors.Join(p.admit(cmd.Process.Pid), pressure.Offer(cmd.Process.Pid))
	if err == nil {
		_, err = gate.w.Write([]byte{1})
	}
	if err != nil {
		cmd.Process.Kill()
		return errors.Join(err, cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		log.r.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // remaining processes of runsc can hold the other end
		return fmt.Errorf("runsc create: %w: %s", err, <-said)
	}
	return nil
}

// runsc returns the command that creates a sandbox. The sandbox inherits only the null device and the log. Nothing
// reads the log after the create, so nothing inside can fill the host's disk with it.
func (d *Driver) runsc(p folder, program string, l hutch.Limits) *exec.Cmd {
	cmd := exec.Command(program,
		"--root="+p.state(),
		"--log=/proc/self/fd/4",
		"--platform=systrap",
		fmt.Sprintf("--systrap-disable-fast-path=%t", !spare(l.CPU)),
		"--network=sandbox",
		"--gofer-network-namespace=new", // otherwise a mount keeps the old namespace alive
		"--ignore-cgroups",
		"--in-sandbox-cgroup=v2",
		"--host-settings=ignore",
		"--file-access-mounts=exclusive",
		"--host-uds=create",
		fmt.Sprintf("--overlay2=root:dir=%s,size=%dm", p.files(), l.Disk),
		"--allow-rootfs-tar-annotation",
		"--allow-suid", // applies if the bundle allows new privileges
		"create", "--bundle="+p.dir, container,
	)
	cmd.Env = []string{contract.Gate + "=3", "GOGC=off", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return cmd
}

// spare reports whether a sandbox should keep a core busy while it waits for the next system call, which makes the
// answer faster. With fewer cores, or if the CPU limit counts the waiting, this makes everything slower by a third.
func spare(cores float64) bool { return cores >= 2 && runtime.NumCPU() >= 4 }

// start starts cmd in the instance's group, if the kernel supports starting a process in a group.
func (p folder) start(cmd *exec.Cmd) error {
	if p.group == nil {
		return cmd.Start()
	}
	fd, err := p.group.FD()
	if errors.Is(err, errors.ErrUnsupported) {
		return cmd.Start()
	}
	if err != nil {
		return err
	}
	defer fd.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(fd.Fd())
	return cmd.Start()
}

// admit moves a process that waits at the gate into the instance's group, unless the process was started in the group.
func (p folder) admit(pid int) error {
	if p.group == nil {
		return nil
	}
	if fd, err := p.group.FD(); err == nil {
		return fd.Close()
	}
	return p.group.Add(pid)
}

// pipe has the two ends of a pipe, which can be closed twice.
type pipe struct{ r, w *os.File }

func (p *pipe) open() (err error) {
	p.r, p.w, err = os.Pipe()
	return err
}

func (p *pipe) close() {
	p.r.Close()
	p.w.Close()
}

// drain reads everything, and then sends the end of it once.
func drain(r io.Reader) <-chan string {
	const most = 4 << 10
	said := make(chan string, 1)
	go func() {
		var kept []byte
		buf := make([]byte, most)
		for {
			n, err := r.Read(buf)
			kept = append(kept, buf[:n]...)
			kept = kept[max(0, len(kept)-most):]
			if err != nil {
				said <- strings.TrimSpace(string(kept))
				close(said)
				return
			}
		}
	}()
	return said
}
