package httpio

import (
	"errors"
	"io"
	"testing"
	"time"
)

// slow is a reader that fails when the test closes end.
type slow struct{ begun, end chan struct{} }

func (s slow) Read([]byte) (int, error) {
	close(s.begun)
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// After a failed write, a Read can still be running: Err does not wait for it, and Wait does.
func TestArriving(t *testing.T) {
	t.Parallel()
	from, broken := slow{make(chan struct{}), make(chan struct{})}, errors.New("broken")
	a := NewArriving(from, func(error) error { return broken })
	go a.Read(make([]byte, 10))
	<-from.begun
	if err := a.Err(); err != nil {
		t.Error(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(from.end) })
	a.Wait()
	if err := a.Err(); err != broken {
		t.Error(err)
	}
}
