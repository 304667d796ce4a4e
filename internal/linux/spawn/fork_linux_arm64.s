#include "textflag.h"

// func rawFork(trap, a, b, c, d uintptr) (pid, errno uintptr)
//
// The return address is in the link register. The child has its own copy of it.
TEXT ·rawFork(SB), NOSPLIT|NOFRAME, $0-56
	MOVD	trap+0(FP), R8
	MOVD	a+8(FP), R0
	MOVD	b+16(FP), R1
	MOVD	c+24(FP), R2
	MOVD	d+32(FP), R3
	MOVD	$0, R4
	SVC
	CMN	$4095, R0
	BCC	ok
	MOVD	$0, pid+40(FP)
	NEG	R0, R0
	MOVD	R0, errno+48(FP)
	RET
ok:
	MOVD	R0, pid+40(FP)
	MOVD	$0, errno+48(FP)
	RET
