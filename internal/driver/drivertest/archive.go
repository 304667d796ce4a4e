package drivertest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// The files of an instance can be kept without its agent, because the agent can be of another version. A program that
// writes meanwhile does no harm.
func keepsFilesWithoutTheAgent(t *testing.T, s *suite) {
	p := s.create(t, "one")
	p.want(t, "echo kept > /workspace/file; chmod 640 /workspace/file; ln -s /etc/passwd /tmp/link", "")
	if _, err := p.agent.Start(t.Context(), wire.Start{ID: "job", Command: "while :; do date > /tmp/busy; done"}); err != nil {
		t.Fatal(err)
	}
	p.agent.Close()
	const look = "stat -c '%a %U' /workspace/file; cat /workspace/file; readlink /tmp/link"
	if f, ok := p.Instance.(driver.FileSaver); ok {
		dir := s.Dir(t)
		if err := f.SaveFiles(t.Context(), dir); err != nil {
			t.Fatal(explain(err))
		}
		inst, err := s.driver.(driver.Restorer).RestoreFiles(t.Context(), s.spec("two"), dir)
		if err != nil {
			t.Fatal(explain(err))
		}
		own(t, inst).want(t, look, "640 user\nkept\n/etc/passwd")
		return
	}
	var archive bytes.Buffer
	err := p.Instance.(driver.Archiver).Archive(t.Context(), &archive)
	if s.Root.EROFS != "" {
		if !errors.Is(err, hutch.Unsupported) { // tar would be that of the image
			t.Errorf("the files of an instance with an image: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(explain(err))
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(explain(err))
	}
	next := s.create(t, "two")
	exit, err := next.agent.Run(t.Context(), wire.Start{ID: "tar", Argv: []string{"tar", "--extract", "--file=-", "--directory=/", "--preserve-permissions"}, Stdin: true}, io.Reader(&archive), nil)
	if err != nil || exit.Code > 1 {
		t.Fatalf("extract: %+v, %v", exit, err)
	}
	next.want(t, look, "640 user\nkept\n/etc/passwd")
}
