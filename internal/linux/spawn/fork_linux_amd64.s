#include "textflag.h"

// func rawVfork() (pid, errno uintptr)
//
// The child returns on the stack that it shares with its parent and overwrites
// the return address there, so the parent keeps it in a register.
TEXT ·rawVfork(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ	$0x4111, DI // CLONE_VM | CLONE_VFORK | SIGCHLD
	MOVQ	$0, SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$56, AX // clone
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$0, pid+0(FP)
	NEGQ	AX
	MOVQ	AX, errno+8(FP)
	RET
ok:
	MOVQ	AX, pid+0(FP)
	MOVQ	$0, errno+8(FP)
	RET
