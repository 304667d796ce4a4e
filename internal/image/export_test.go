package image

import "testing"

// FirstGoProgram runs a Go program on gVisor from an image with warm caches, which takes half a minute to make: so the
// tests in this package and those of package image_test share it.
var FirstGoProgram func(t *testing.T, root Root)
