package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// programs are copies of the built programs. Every process that runs one of these files is ours, so no process of
// another Hutch is counted.
type programs struct {
	dir   string
	files map[string]os.FileInfo
	// keepers are the processes that can run a program from a copy in memory, which they hold open.
	keepers []int
}

// ours are the names of the programs: first the server's, then those that run for each sandbox.
var ours = []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"}

func copyPrograms(from, to string) (programs, error) {
	p := programs{dir: to, files: map[string]os.FileInfo{}, keepers: []int{os.Getpid()}}
	for _, name := range ours {
		path := filepath.Join(to, name)
		if err := copyProgram(filepath.Join(from, name), path); err != nil {
			return p, fmt.Errorf("%w: run `make build`", err)
		}
		var err error
		if p.files[name], err = os.Stat(path); err != nil {
			return p, err
		}
	}
	return p, nil
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// running lists the processes that run one of the named programs.
func (p programs) running(names ...string) []int {
	var files []os.FileInfo
	for _, name := range names {
		files = slices.Concat(files, []os.FileInfo{p.files[name]}, p.inMemory(name), p.kept(name))
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		exe, err := os.Stat(filepath.Join(dir, "exe"))
		if err != nil {
			continue // it has ended, or belongs to the kernel
		}
		if slices.ContainsFunc(files, func(f os.FileInfo) bool { return os.SameFile(f, exe) }) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// kept lists the copies of a program that servers keep for sleeping sandboxes.
func (p programs) kept(name string) []os.FileInfo {
	var files []os.FileInfo
	paths, _ := filepath.Glob(filepath.Join(p.dir, "*", "server", "builds", "*", name))
	for _, path := range paths {
		if f, err := os.Stat(path); err == nil {
			files = append(files, f)
		}
	}
	return files
}

// inMemory lists the keepers' copies of a program in memory.
func (p programs) inMemory(name string) []os.FileInfo {
	var files []os.FileInfo
	for _, pid := range p.keepers {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if target, _ := os.Readlink(fd); !strings.HasPrefix(target, "/memfd:"+name) {
				continue
			}
			if f, err := os.Stat(fd); err == nil {
				files = append(files, f)
			}
		}
	}
	return files
}

// memory is the memory of a set of processes, in MiB.
type memory struct {
	private float64 // memory that would be free without them, except files
	pss     float64 // private, and a fair share of the shared programs and libraries
	anon    float64 // resident memory that belongs to no file
}

// memoryOf returns the memory of processes. Memory that several of them share counts once. They must not share memory
// with other processes.
func memoryOf(pids []int) (memory, error) {
	var m memory
	if len(pids) == 0 {
		return m, errors.New("no process of a sandbox was found")
	}
	for _, pid := range spaces(pids) {
		roll, err := kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return m, err
		}
		status, err := kilobytes(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return m, err
		}
		m.private += (roll["Pss_Anon"] + roll["Pss_Shmem"]) / 1024
		m.pss += roll["Pss"] / 1024
		m.anon += status["RssAnon"] / 1024
	}
	return m, nil
}

// spaces returns one process for each address space. The processes in which gVisor runs the threads of a program share
// one address space, and each of them reports all of it as private.
func spaces(pids []int) (one []int) {
	for _, pid := range pids {
		if !slices.ContainsFunc(one, func(other int) bool { return sameMemory(pid, other) }) {
			one = append(one, pid)
		}
	}
	return one
}

func sameMemory(a, b int) bool {
	const kcmpVM = 1 // KCMP_VM, see kcmp(2)
	order, _, err := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return err == 0 && order == 0
}

// kilobytes reads the lines `Name:   123 kB` of a file.
func kilobytes(path string) (map[string]float64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if n, ok := strings.CutSuffix(value, " kB"); ok {
			fields[name], _ = strconv.ParseFloat(strings.TrimSpace(n), 64)
		}
	}
	return fields, nil
}

// tick is the unit of times in proc_pid_stat(5). Linux reports 100 ticks a second there, whatever its own tick is.
const tick = 10 * time.Millisecond

// cpuOf returns the CPU time of processes and of their children that have ended.
func cpuOf(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(f, 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// machine describes the machine of the measurement in one line.
func machine() string {
	var u unix.Utsname
	unix.Uname(&u)
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d cores (%s), Linux %s, %s, commit %s, load at the start %s", runtime.NumCPU(), cpuModel(),
		unix.ByteSliceToString(u.Release[:]), runtime.Version(), commit(), strings.Join(strings.Fields(string(load))[:1], ""))
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(b), "model name\t: ")
	line, _, _ := strings.Cut(rest, "\n")
	if line == "" {
		return runtime.GOARCH
	}
	return line
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
