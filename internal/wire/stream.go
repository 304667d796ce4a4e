package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"hutch"
)

// stream is the daemon's end of a start or an attach, from started to exit.
type stream struct {
	conn   *conn
	out    func(hutch.Output) error
	cursor int64     // behind the last output; -1 before an attach's first
	limit  time.Time // when the agent kills the process; zero if never
	late   int64     // bytes that came after that
	exit   Exit

	room chan int64 // latest count of stdin bytes the program has taken
}

// outError is an error of the caller's output function.
type outError struct{ error }

func (s *stream) run(stdin io.Reader) error {
	if stdin != nil {
		done := s.pump(stdin)
		defer func() { s.conn.busy = !finished(done) }()
		defer close(s.room)
	}
	for {
		s.conn.SetReadDeadline(s.deadline())
		t, payload, err := s.conn.r.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return broken(errors.New("process not reported dead after its time limit"))
		}
		if err != nil {
			return err
		}
		if done, err := s.frame(t, payload); done || err != nil {
			return err
		}
	}
}

// deadline is until when the next frame must come.
func (s *stream) deadline() time.Time {
	if s.limit.IsZero() {
		return time.Time{}
	}
	end := s.limit.Add(killGrace)
	if grace := time.Now().Add(killGrace); grace.After(end) {
		return grace
	}
	return end
}

func (s *stream) frame(t Type, payload []byte) (done bool, err error) {
	switch t {
	case TypeStdout:
		return false, s.output(hutch.Stdout, payload)
	case TypeStderr:
		return false, s.output(hutch.Stderr, payload)
	case TypeGap:
		_, err := ParseCount(payload) // the next cursor tells as much
		return false, err
	case TypeWindow:
		return false, s.window(payload)
	case TypeExit:
		return true, s.exited(payload)
	case TypeError:
		return true, refusal(payload)
	}
	return true, fmt.Errorf("frame of type %q in a stream", t)
}

func (s *stream) output(name hutch.Stream, payload []byte) error {
	cursor, data, err := ParseOutput(payload)
	if err != nil {
		return err
	}
	begin := cursor - int64(len(data))
	if s.cursor < 0 {
		s.cursor = begin
	}
	if begin < s.cursor {
		return fmt.Errorf("output at %d comes after %d", begin, s.cursor)
	}
	if err := s.count(len(data)); err != nil {
		return err
	}
	o := hutch.Output{Stream: name, Data: data, Cursor: cursor, Lost: begin - s.cursor}
	s.cursor = cursor
	if s.out == nil || len(data) == 0 {
		return nil
	}
	if err := s.out(o); err != nil {
		return outError{err}
	}
	return nil
}

// count bounds what an agent may send of a process that should be dead: the
// log it keeps and what pipes and sockets hold.
func (s *stream) count(n int) error {
	if s.limit.IsZero() || time.Now().Before(s.limit.Add(killGrace)) {
		return nil
	}
	if s.late += int64(n); s.late > 8*LogSize {
		return errors.New("output does not end after the time limit")
	}
	return nil
}

func (s *stream) exited(payload []byte) error {
	if err := json.Unmarshal(payload, &s.exit); err != nil {
		return err
	}
	if e := s.exit; e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 64 {
		return fmt.Errorf("exit with code %d and signal %d", e.Code, e.Signal)
	}
	return nil
}

// window takes note of how much stdin the program has taken.
func (s *stream) window(payload []byte) error {
	n, err := ParseCount(payload)
	if err != nil {
		return err
	}
	select {
	case <-s.room: // only the newest count matters
	default:
	}
	select {
	case s.room <- n:
	default:
	}
	return nil
}

// pump sends stdin, at most StdinWindow bytes ahead of the program. The
// channel it returns is closed when it is done with the connection; it may
// outlive the stream by one Read of stdin, which nothing can interrupt.
func (s *stream) pump(stdin io.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 32<<10)
		var sent, taken int64
		for {
			for sent-taken > StdinWindow-int64(len(buf)) {
				n, open := <-s.room
				if !open {
					return
				}
				taken = n
			}
			n, err := stdin.Read(buf)
			if n > 0 {
				if s.conn.w.Write(TypeStdin, buf[:n]) != nil {
					return
				}
				sent += int64(n)
			}
			if err != nil {
				s.conn.w.Write(TypeStdinEnd, nil)
				return
			}
		}
	}()
	return done
}

func finished(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
