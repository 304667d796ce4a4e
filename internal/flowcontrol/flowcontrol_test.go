package flowcontrol_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"hutch/internal/flowcontrol"
)

const size = 1 << 10

// sender sends no more than the window that the queue reports.
type sender struct {
	q    *flowcontrol.Queue
	told chan int64
}

func newSender() *sender {
	s := &sender{told: make(chan int64, 1<<16)}
	s.q = flowcontrol.NewQueue(size, func(n int64) { s.told <- n })
	return s
}

// send sends all of b, in pieces as the window allows.
func (s *sender) send(t *testing.T, b []byte) {
	var sent, taken int64
	for int(sent) < len(b) {
		if sent-taken == size {
			taken = <-s.told
		}
		n := min(size-(sent-taken), int64(len(b))-sent)
		if !s.q.Add(b[sent : sent+n]) {
			t.Errorf("%d bytes at %d were refused, with %d taken", n, sent, taken)
			break
		}
		sent += n
	}
	s.q.End(io.EOF)
}

func TestWhatIsSentIsRead(t *testing.T) {
	t.Parallel()
	want := make([]byte, 100*size+17)
	for i := range want {
		want[i] = byte(i * i >> 5)
	}
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"a byte at a time": iotest.OneByteReader,
		"all there is":     func(r io.Reader) io.Reader { return r },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender()
			go s.send(t, want)
			if got, err := io.ReadAll(reader(s.q)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
			}
		})
	}
}

func TestOverTheWindow(t *testing.T) {
	t.Parallel()
	s := newSender()
	full := make([]byte, size)
	if !s.q.Add(full) || s.q.Add(full[:1]) {
		t.Error("the window is not as wide as it is said to be")
	}
	// Consumed bytes free space in the window only after they were reported to the sender.
	if n, err := s.q.Read(make([]byte, 10)); n != 10 || err != nil || s.q.Add(full[:1]) {
		t.Error("the window has space that the sender does not know of")
	}
	if _, err := s.q.Read(make([]byte, size/4)); err != nil || <-s.told != 10+size/4 || !s.q.Add(full[:10]) {
		t.Error("the window has no space after the sender was notified")
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		ends []error
		want string
		err  error
	}{
		"the end":                  {[]error{io.EOF}, "abc", nil},
		"broken off":               {[]error{broken}, "", broken},
		"broken off after its end": {[]error{io.EOF, broken}, "abc", nil},
	} {
		s := newSender()
		s.q.Add([]byte("abc"))
		for _, err := range c.ends {
			s.q.End(err)
		}
		if s.q.Add([]byte("d")) {
			t.Errorf("%s: more was taken", name)
		}
		if got, err := io.ReadAll(s.q); string(got) != c.want || err != c.err {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestBreakingOffWakesTheReader(t *testing.T) {
	t.Parallel()
	s, broken := newSender(), errors.New("broken")
	read := make(chan error)
	go func() {
		_, err := s.q.Read(make([]byte, 1))
		read <- err
	}()
	s.q.End(broken)
	if err := <-read; err != broken {
		t.Errorf("%v", err)
	}
}
