package inside

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"hutch/internal/wire"
)

// gVisor shows the environment with which this process was started to every program, in a file of gVisor's own in
// /proc. That environment has the boot message, which contains the pass for clone3. So the file is covered and the pass
// is replaced: a program that mounts another /proc finds only a useless pass.

const environment = "/proc/gvisor/spec_environ"

// coverStart covers the file for good: no command can unmount it.
func coverStart() error {
	if _, err := os.Stat(environment); errors.Is(err, fs.ErrNotExist) { // this kernel is not gVisor
		return nil
	}
	if err := unix.Mount(os.DevNull, environment, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", environment, err)
	}
	return nil
}

// These are the parts of a filter's instruction: the code, two jumps and a value.
const (
	instruction = 8
	loadWord    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpIfEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	thirdArg    = 16 + 2*8 // position of the third argument in the kernel's struct seccomp_data
)

// RenewPass replaces the pass in a boot message, and in its filter, by one that only this process knows.
func RenewPass(boot *wire.Boot) error {
	var fresh [16]byte
	rand.Read(fresh[:])
	old := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, boot.Pass[0]), boot.Pass[1])
	replaced := 0
	for f := boot.Filter; len(f) >= 2*instruction; f = f[instruction:] {
		load, jump := f[:instruction], f[instruction:2*instruction]
		word := int(value(load)) - thirdArg
		if code(load) != loadWord || code(jump) != jumpIfEqual || word < 0 || word > 12 || word%4 != 0 {
			continue
		}
		if value(jump) == binary.NativeEndian.Uint32(old[word:]) {
			copy(jump[4:], fresh[word:word+4])
			replaced++
		}
	}
	if replaced != 4 {
		return fmt.Errorf("the seccomp filter compares %d words with its pass, not 4", replaced)
	}
	boot.Pass = [2]uint64{binary.NativeEndian.Uint64(fresh[:]), binary.NativeEndian.Uint64(fresh[8:])}
	return nil
}

func code(of []byte) uint16  { return binary.NativeEndian.Uint16(of) }
func value(of []byte) uint32 { return binary.NativeEndian.Uint32(of[4:]) }
