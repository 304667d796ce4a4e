package httpio

import (
	"errors"
	"io"
	"testing"
	"time"
)

// slow is a reader that fails when it may.
type slow struct{ begun, end chan struct{} }

func (s slow) Read([]byte) (int, error) {
	close(s.begun)
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// A write that fails can leave a Read under way: its result can be asked for meanwhile, and the next reader waits.
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
