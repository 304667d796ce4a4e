//go:build !amd64

package filter

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// No filters are compiled for this processor.
var Gofer, Sentry precompiledseccomp.Program
