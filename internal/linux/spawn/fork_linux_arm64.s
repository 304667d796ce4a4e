#include "textflag.h"

// func rawVfork() (pid, errno uintptr)
//
// The return address is in the link register, which the child has its own of.
TEXT ·rawVfork(SB), NOSPLIT|NOFRAME, $0-16
	MOVD	$0x4111, R0 // CLONE_VM | CLONE_VFORK | SIGCHLD
	MOVD	$0, R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$220, R8 // clone
	SVC
	CMN	$4095, R0
	BCC	ok
	MOVD	$0, pid+0(FP)
	NEG	R0, R0
	MOVD	R0, errno+8(FP)
	RET
ok:
	MOVD	R0, pid+0(FP)
	MOVD	$0, errno+8(FP)
	RET
