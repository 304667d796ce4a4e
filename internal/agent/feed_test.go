package agent

import (
	"bytes"
	"os"
	"testing"

	"hutch/internal/wire"
)

// After the end of a program the agent reports nothing more about its input: to the client, the report would look like
// the answer to its next request on the connection.
func TestNoReportAfterTheEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var sent bytes.Buffer
	f := newFeed(wire.NewWriter(&sent))
	if !f.addInput(make([]byte, wire.StdinWindow)) {
		t.Fatal("a whole window is refused")
	}
	done := make(chan error, 1)
	go func() { done <- f.writeTo(w) }()
	if _, err := r.Read(make([]byte, 1)); err != nil { // the rest does not fit in the pipe, and blocks
		t.Fatal(err)
	}
	f.close()
	if err := <-done; err == nil {
		t.Error("all input was written")
	}
	if sent.Len() != 0 {
		t.Errorf("sent %q", sent.Bytes())
	}
}
