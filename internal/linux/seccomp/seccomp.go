// Package seccomp has the list of system calls that a sandboxed program can make, and compiles it into filters for the
// kernel.
//
// The list is an allow-list. A call that is not in it gets ENOSYS, so that programs fall back as they do on an older
// kernel. A call that is listed as denied gets EPERM, as for any user without privileges.
//
// When a filter is loaded, the kernel runs it once for each system call number. A chain of comparisons would make that
// slow. So a filter finds a number by binary search, with about nine comparisons.
package seccomp

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Filter returns the filter for sandboxed programs on this machine, as an array of the kernel's struct sock_filter.
var Filter = sync.OnceValues(func() ([]byte, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("compile the seccomp filter: %w", err)
	}
	return compile(machine)
})

// FilterApart is [Filter] for sandboxes whose commands have their own user namespace. The agent enters that namespace
// for each command, so the filter also allows setns to programs that know the pass.
func FilterApart(p Pass) ([]byte, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("compile the seccomp filter: %w", err)
	}
	return encode(machine, p.enter(machine))
}

// enter returns the rules of the policy, with a rule for setns.
func (p Pass) enter(machine *arch.Info) []rule {
	all := policy(machine)
	all.add(machine, []string{"setns"}, p.only(fail(unix.EPERM)))
	return all.list(unknown)
}

// Ancestry returns a filter for sandboxes with their own kernel, in the same form as [Filter]. It only keeps each
// process in the process tree in which it was started. It allows clone3 to programs that know the pass.
func Ancestry(p Pass) ([]byte, error) { return p.compile(ancestry) }

// AncestryApart does the same as [Ancestry], for programs that can be root in their own user namespace. The filter
// also forbids them to make another user namespace, because that would give them capabilities over their files that
// the first namespace withholds. It also forbids them to choose the signal that reports input.
func AncestryApart(p Pass) ([]byte, error) { return p.compile(apart()) }

func apart() map[string][]bpf.Instruction {
	conditions := maps.Clone(ancestry)
	conditions["clone"] = without(0, unix.CLONE_NEWUSER|unix.CLONE_PARENT, unix.EPERM)
	conditions["unshare"] = without(0, unix.CLONE_NEWUSER, unix.EPERM)
	// gVisor sends the signal that reports input to any process, with the rights of root. The default is SIGIO, which
	// does not disturb the agent. F_SETSIG would choose another signal.
	conditions["fcntl"] = unless(1, unix.EINVAL, unix.F_SETSIG)
	return conditions
}

func (p Pass) compile(conditions map[string][]bpf.Instruction) ([]byte, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("compile the seccomp filter of ancestry: %w", err)
	}
	return encode(machine, p.rules(machine, conditions))
}

// Pass is a secret. A program that knows it can call clone3 or setns although the filter refuses these calls to all
// other programs. A filter cannot read the arguments of clone3, because they are in memory. The pass is in the third
// and fourth argument of the call, which the kernel does not use.
type Pass [2]uint64

// NewPass returns a random pass.
func NewPass() (p Pass) {
	var b [16]byte
	rand.Read(b[:])
	return Pass{binary.NativeEndian.Uint64(b[:8]), binary.NativeEndian.Uint64(b[8:])}
}

// rules returns the rules for calls that are allowed under conditions, and the rule for clone3.
func (p Pass) rules(machine *arch.Info, conditions map[string][]bpf.Instruction) []rule {
	all := bodies{}
	all.addEach(machine, conditions)
	all.add(machine, []string{"clone3"}, p.only(unknown))
	return all.list(allow)
}

// only allows a call that has the pass. Any other call gets answer, which must be one instruction.
func (p Pass) only(answer []bpf.Instruction) (code []bpf.Instruction) {
	code = slices.Concat(allow)
	for i := 3; i >= 0; i-- { // backwards, because each comparison is put before the code so far
		word := bpf.LoadAbsolute{Off: uint32(offArgs + 16 + 4*i), Size: 4}
		want := uint32(p[i/2] >> (32 * (i % 2)))
		if bigEndian {
			want = uint32(p[i/2] >> (32 * (1 - i%2)))
		}
		code = slices.Concat([]bpf.Instruction{word, bpf.JumpIf{Cond: bpf.JumpEqual, Val: want, SkipTrue: 1}}, answer, code)
	}
	return code
}

func compile(machine *arch.Info) ([]byte, error) { return encode(machine, rules(machine)) }

// encode compiles rules into a program in the kernel's format.
func encode(machine *arch.Info, rs []rule) ([]byte, error) {
	program, err := bpf.Assemble(assemble(uint32(machine.ID), rs))
	if err != nil {
		return nil, fmt.Errorf("compile the seccomp filter: %w", err)
	}
	if len(program) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("the seccomp filter has %d instructions", len(program))
	}
	var b bytes.Buffer
	for _, in := range program {
		// The layout is the kernel's: u16 code, u8 jt, u8 jf, u32 k.
		if err := binary.Write(&b, binary.NativeEndian, in); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// rule decides about all calls with numbers from first up to the next rule's first, which is not included.
type rule struct {
	first uint32
	body  []bpf.Instruction // ends with a return in every branch
}

// bodies are the instructions that decide about a call, by the number of the call.
type bodies map[uint32][]bpf.Instruction

// rules returns the rules of the policy for all numbers, from 0 on.
func rules(machine *arch.Info) []rule { return policy(machine).list(unknown) }

func policy(machine *arch.Info) bodies {
	all := bodies{}
	all.add(machine, allowed, allow)
	all.add(machine, ignored, fail(0)) // no error: the kernel returns 0 instead of making the call
	all.add(machine, denied, fail(unix.EPERM))
	all.addEach(machine, conditions)
	return all
}

func (all bodies) add(machine *arch.Info, names []string, body []bpf.Instruction) {
	for _, name := range names {
		if nr, ok := machine.SyscallNames[name]; ok {
			all[uint32(nr)] = body
		}
	}
}

func (all bodies) addEach(machine *arch.Info, named map[string][]bpf.Instruction) {
	for name, body := range named {
		all.add(machine, []string{name}, body)
	}
}

// list returns the rules in the order of their numbers. Numbers without a body get other.
func (all bodies) list(other []bpf.Instruction) []rule {
	rs := []rule{{0, other}}
	for _, nr := range slices.Sorted(maps.Keys(all)) {
		if last := &rs[len(rs)-1]; last.first == nr {
			last.body = all[nr]
		} else {
			rs = append(rs, rule{nr, all[nr]})
		}
		rs = append(rs, rule{nr + 1, other})
	}
	return slices.CompactFunc(rs, func(a, b rule) bool { return slices.Equal(a.body, b.body) })
}

// These are offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// assemble returns the whole program. The numbers of x32, another ABI of the same machine, are higher than all numbers
// here, so the last rule applies to them.
func assemble(id uint32, rs []rule) []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: id, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}, search(rs)...)
}

// search finds the rule of the loaded number among rs by binary search.
func search(rs []rule) []bpf.Instruction {
	if len(rs) == 1 {
		return rs[0].body
	}
	middle := len(rs) / 2
	below, above := search(rs[:middle]), search(rs[middle:])
	// A conditional jump can skip only 255 instructions, an unconditional jump any number.
	code := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: rs[middle].first, SkipFalse: 1},
		bpf.Jump{Skip: uint32(len(below))},
	}
	return append(append(code, below...), above...)
}

var unknown = fail(unix.ENOSYS)

var allow = []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}}

func fail(errno unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}}
}

// argument loads the low half of an argument. The kernel uses only the low 32 bits of the arguments that are tested here,
// so the high half must not matter.
func argument(n int) bpf.Instruction {
	off := uint32(offArgs + 8*n)
	if bigEndian {
		off += 4
	}
	return bpf.LoadAbsolute{Off: off, Size: 4}
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// without allows a call if none of the bits is set in argument n.
func without(n int, bits uint32, errno unix.Errno) []bpf.Instruction {
	return slices.Concat([]bpf.Instruction{argument(n),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1}}, fail(errno), allow)
}

// unless allows a call if argument n is not one of the values.
func unless(n int, errno unix.Errno, values ...uint32) []bpf.Instruction {
	return oneOf(n, fail(errno), allow, values)
}

// only allows a call if argument n is one of the values.
func only(n int, errno unix.Errno, values ...uint32) []bpf.Instruction {
	return oneOf(n, allow, fail(errno), values)
}

func oneOf(n int, then, otherwise []bpf.Instruction, values []uint32) []bpf.Instruction {
	code := []bpf.Instruction{argument(n)}
	for i, v := range values {
		rest := len(values) - 1 - i
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(rest + len(otherwise))})
	}
	return slices.Concat(code, otherwise, then)
}
