// Package wallclock lets the wall clock of a single program jump, as when an administrator sets the time of a machine.
// The program's monotonic clock and its timers continue.
//
// Go programs read the clock with code that the kernel maps into each process (vdso(7)). Before the first instruction
// of a process runs, this package replaces that code by code that asks the kernel for the time and adds an offset.
package wallclock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the wall clock of one program.
type Clock struct {
	memory *os.File
	added  int64 // address of the offset in seconds
}

// ErrUnsupported means that this package has no code for the processor.
var ErrUnsupported = errors.New("no wall clock for this processor")

// Start starts a program. Its clock is right until Set is called; otherwise it runs like any other program.
func Start(cmd *exec.Cmd) (*Clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, ErrUnsupported
	}
	runtime.LockOSThread() // because this thread traces the program until it runs
	defer runtime.UnlockOSThread()
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Ptrace = true
	cmd.SysProcAttr = &attr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var status unix.WaitStatus
	_, err := unix.Wait4(cmd.Process.Pid, &status, 0, nil)
	var c *Clock
	if err == nil {
		c, err = replace(cmd.Process.Pid)
	}
	if err = errors.Join(err, unix.PtraceDetach(cmd.Process.Pid)); err != nil {
		cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("replace the clock of a program: %w", err), cmd.Wait())
	}
	return c, nil
}

// Set makes the clock differ from the real time by d from now on.
func (c *Clock) Set(d time.Duration) error {
	_, err := c.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second)), c.added)
	return err
}

// Close closes the file with the memory of the program.
func (c *Clock) Close() error { return c.memory.Close() }

// code calls clock_gettime(2), and then adds the offset to the seconds of CLOCK_REALTIME.
var code = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov eax, 228
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0e, // jne end
	0x85, 0xc0, // test eax, eax
	0x75, 0x0a, // jne end
	0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [rip + distance]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // end: ret
}

const distance = 18 // position of the distance in the code; the distance itself counts from the next instruction

func replace(pid int) (*Clock, error) {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	at, err := find(pid, memory)
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	c := &Clock{memory, (at + int64(len(code)) + 7) &^ 7}
	text := bytes.Clone(code)
	binary.LittleEndian.PutUint32(text[distance:], uint32(c.added-at-distance-4))
	text = append(text, make([]byte, c.added+8-at-int64(len(text)))...)
	if _, err := memory.WriteAt(text, at); err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return c, nil
}

// find returns the address of the function that reads clocks.
func find(pid int, memory io.ReaderAt) (int64, error) {
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	const ehdr = 33 // AT_SYSINFO_EHDR
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.LittleEndian.Uint64(auxv) != ehdr {
			continue
		}
		base := int64(binary.LittleEndian.Uint64(auxv[8:]))
		image, err := elf.NewFile(io.NewSectionReader(memory, base, 1<<16))
		if err != nil {
			return 0, err
		}
		symbols, err := image.DynamicSymbols()
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" {
				return base + int64(s.Value), nil
			}
		}
		return 0, errors.Join(err, errors.New("the kernel's code has no clock"))
	}
	return 0, errors.New("the kernel gives no code")
}
