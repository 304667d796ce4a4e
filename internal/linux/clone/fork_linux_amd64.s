#include "textflag.h"

// func rawClone(args *cloneArgs, size uintptr) (pid, errno uintptr)
//
// The child returns on the stack that it shares with its parent, and so overwrites the return address there. The parent
// keeps that address in a register.
TEXT ·rawClone(SB), NOSPLIT|NOFRAME, $0-32
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX // clone3
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$0, pid+16(FP)
	NEGQ	AX
	MOVQ	AX, errno+24(FP)
	RET
ok:
	MOVQ	AX, pid+16(FP)
	MOVQ	$0, errno+24(FP)
	RET
