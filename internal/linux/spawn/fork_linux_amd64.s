#include "textflag.h"

// func rawFork(trap, a, b, c, d uintptr) (pid, errno uintptr)
//
// The child returns on the stack that it shares with its parent, and so overwrites the return address there. The parent
// keeps that address in a register.
TEXT ·rawFork(SB), NOSPLIT|NOFRAME, $0-56
	MOVQ	trap+0(FP), AX
	MOVQ	a+8(FP), DI
	MOVQ	b+16(FP), SI
	MOVQ	c+24(FP), DX
	MOVQ	d+32(FP), R10
	MOVQ	$0, R8
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$0, pid+40(FP)
	NEGQ	AX
	MOVQ	AX, errno+48(FP)
	RET
ok:
	MOVQ	AX, pid+40(FP)
	MOVQ	$0, errno+48(FP)
	RET
