package main

import (
	"strings"
	"testing"
)

// An image of the same name in another registry is another image.
func TestSameImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0f", 32)
	other := "sha256:" + strings.Repeat("1e", 32)
	began := "docker.io/library/python:3.12@" + digest
	for want, same := range map[string]bool{
		"python:3.12": true, "docker.io/library/python:3.12": true, digest: true, "python:3.12@" + digest: true,
		"python": false, "python:3.11": false, "ghcr.io/library/python:3.12": false, other: false, "python:3.12@" + other: false, "host": false, "bad name": false,
	} {
		if got := sameImage(began, want); got != same {
			t.Errorf("a sandbox of %s has the image %q: %v", began, want, got)
		}
	}
	if sameImage("ghcr.io/evil/python:3.12@"+digest, "python:3.12") {
		t.Error("an image of another registry is taken for docker.io's")
	}
	if !sameImage("host", "host") || sameImage("host", "python") {
		t.Error("host is taken for an image, or not for itself")
	}
}
