//go:build !amd64

package filter

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// There are none.
var Gofer, Sentry precompiledseccomp.Program
