#include "textflag.h"

// func rawClone(args *cloneArgs, size uintptr) (pid, errno uintptr)
//
// The return address is in the link register. The child has its own copy of it.
TEXT ·rawClone(SB), NOSPLIT|NOFRAME, $0-32
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	$435, R8 // clone3
	SVC
	CMN	$4095, R0
	BCC	ok
	MOVD	$0, pid+16(FP)
	NEG	R0, R0
	MOVD	R0, errno+24(FP)
	RET
ok:
	MOVD	R0, pid+16(FP)
	MOVD	$0, errno+24(FP)
	RET
