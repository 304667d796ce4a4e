package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// program is the agent program as a sealed file in memory. An instance that got hold of it through /proc could not
// write to it (CVE-2019-5736). It could not add attributes either, which have no size limit there and outlive the
// instance. The ids of an instance need no access to the file on disk, and an upgrade of that file does not affect
// running instances. Without root, the program inside is the file on disk, mounted read only, because the file in
// memory would belong to the user of the instance, who could change its mode.
type program struct {
	mu   sync.Mutex
	file *os.File
}

// open returns the program, which it reads from path only once.
func (p *program) open(path string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		return p.file, nil
	}
	file, err := sealed(path)
	if err != nil {
		return nil, fmt.Errorf("load the agent program: %w", err)
	}
	p.file = file
	return file, nil
}

func sealed(path string) (*os.File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("hutch-agent", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // the kernel is older than Linux 6.3
		fd, err = unix.MemfdCreate("hutch-agent", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	out := os.NewFile(uintptr(fd), "hutch-agent")
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o555) // seals do not stop others with write permission from changing times and attributes
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		out.Close()
		return nil, os.NewSyscallError("seal", err)
	}
	return out, nil
}
