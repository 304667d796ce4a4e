package image

import "testing"

// FirstGoProgram runs a Go program on gVisor from an image with warm caches. That image takes half a minute to make,
// so the tests in this package share it with those of package image_test.
var FirstGoProgram func(t *testing.T, root Root)
