//go:build compat

package sdk

import (
	"archive/tar"
	"io"
	"strings"
	"testing"

	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/server"
)

// TestInspect runs inspect_ai's own checks of a sandbox provider: with the host's programs, where a check that needs
// root cannot pass, and in an image.
func TestInspect(t *testing.T) {
	s := serve(t)
	image := load(t, s)
	for name, want := range map[string]struct {
		args   []string
		result string
	}{
		"host":  {nil, "43 of 44 checks pass"},
		"image": {[]string{image, "1000:1000"}, "44 of 44 checks pass"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runIn(t, "requirements-inspect.lock", []string{"HUTCH_URL=" + s.URL, "HUTCH_TOKEN=" + server.Token}, "python", append([]string{"tests/self_check.py"}, want.args...)...)
			if t.Log(out); !strings.Contains(out, want.result) {
				t.Errorf("want %s", want.result)
			}
		})
	}
}

// load loads a Debian image with all programs that the checks use into the server, and returns the image's name.
func load(t *testing.T, s *server.Process) string {
	t.Helper()
	r, pipe := io.Pipe()
	go func() { pipe.CloseWithError(debian.WriteArchive(pipe, "inspect-debian:1", fillForInspect)) }()
	images, err := s.LoadImages(t.Context(), "", r)
	if err != nil || len(images) != 1 {
		t.Fatalf("loaded %v, %v", images, err)
	}
	return images[0].ID
}

func fillForInspect(w *tar.Writer) error {
	for _, kind := range []string{"auth", "account", "password", "session"} { // a package's script would write these
		text := kind + " required pam_permit.so\n"
		w.WriteHeader(&tar.Header{Name: "etc/pam.d/common-" + kind, Size: int64(len(text)), Mode: 0o644})
		io.WriteString(w, text)
	}
	return debian.WriteWith(w, "adduser", "passwd", "procps", "perl-base", "dash", "sed", "findutils", "debconf")
}
