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

// stream is the daemon's end of a start or an attach, from the started frame to the exit frame.
type stream struct {
	conn   *conn
	out    func(hutch.Output) error
	follow bool          // set for an attach: the process can still run when the stream ends
	from   int64         // where an attach starts, if that output is still kept
	cursor int64         // cursor after the last output; -1 before the first output of an attach
	limit  time.Time     // when the agent should have sent the exit; zero if never
	grace  time.Duration // how much longer to wait for the exit
	late   int           // bytes received after the limit
	exit   Exit
	code   *codeRun  // set for a run in a context
	times  bool      // the agent can report the times of output
	at     time.Time // time of the next output, if the agent reported it

	room chan int64 // how much stdin the program has read so far, in bytes
}

// attach makes s the stream of an attach.
func (s *stream) attach(a Attach) {
	s.follow, s.from, s.cursor, s.times = true, a.Cursor, -1, a.Times
	if a.SinceMS > 0 { // skipped output does not count as lost
		s.from = maxCount
	}
	if !a.Follow { // the stream ends after the output that exists now
		s.limit = time.Now().Add(replyTime)
	}
}

// callerError is an error of the caller's output function or stdin.
type callerError struct{ error }

func (s *stream) run(stdin io.Reader) error {
	s.grace = killGrace
	if stdin == nil {
		return s.frames(nil)
	}
	return s.fed(stdin, StdinWindow, s.frames)
}

// fed sends stdin while read reads the agent's frames. sent is closed when everything was sent.
func (s *stream) fed(stdin io.Reader, window int, read func(sent <-chan struct{}) error) error {
	done, failed := make(chan struct{}), make(chan error, 1)
	go s.pump(stdin, window, done, failed)
	defer func() { s.conn.busy = !finished(done) }()
	defer close(s.room)
	err := read(done)
	if err != nil {
		select {
		case err = <-failed:
		default:
		}
	}
	return err
}

// frames reads up to the exit.
func (s *stream) frames(<-chan struct{}) error {
	for {
		t, payload, err := s.next()
		if err != nil {
			return err
		}
		if done, err := s.frame(t, payload); done || err != nil {
			return err
		}
	}
}

// next reads a frame. After the limit, an agent has only s.grace and a bounded number of bytes left to finish. Only
// waiting for the agent counts, not the time in the caller's function.
func (s *stream) next() (Type, []byte, error) {
	if s.limit.IsZero() {
		return s.conn.r.Next()
	}
	begin := time.Now()
	over := begin.After(s.limit)
	if over {
		s.conn.SetReadDeadline(begin.Add(s.grace))
	} else {
		s.conn.SetReadDeadline(s.limit.Add(s.grace))
	}
	t, payload, err := s.conn.r.Next()
	if over {
		s.grace -= time.Since(begin)
		s.late += frameCost + len(payload)
	}
	if s.grace < 0 || s.late > maxLate || errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil, errors.New("no end after the time limit")
	}
	return t, payload, err
}

// After the limit, the agent's log and the content of pipes and sockets can still arrive: at most maxLate bytes. Each
// frame counts as frameCost more, so empty frames are bounded, too.
const (
	maxLate   = 8*LogSize + MaxLog
	frameCost = 64
)

func (s *stream) frame(t Type, payload []byte) (done bool, err error) {
	if s.code != nil {
		if done, mine, err := s.code.frame(s, t, payload); mine {
			return done, err
		}
	}
	switch t {
	case TypeStdout:
		return false, s.output(hutch.Stdout, payload)
	case TypeStderr:
		return false, s.output(hutch.Stderr, payload)
	case TypeGap:
		_, err := parseCount(payload) // the cursor of the next output shows the loss, too
		return false, err
	case TypeTime:
		return false, s.time(payload)
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
	cursor, data, err := parseOutput(payload)
	if err != nil {
		return err
	}
	begin := cursor - int64(len(data))
	if s.cursor < 0 {
		s.cursor = min(s.from, begin)
	}
	if begin < s.cursor {
		return fmt.Errorf("output at %d comes after %d", begin, s.cursor)
	}
	if len(data) == 0 {
		return nil // the loss is reported with the next bytes
	}
	o := hutch.Output{Stream: name, Data: data, Cursor: cursor, Lost: begin - s.cursor, Time: s.at}
	s.cursor = cursor
	if s.out == nil {
		return nil
	}
	if err := s.out(o); err != nil {
		return callerError{err}
	}
	return nil
}

func (s *stream) exited(payload []byte) error {
	var e Exit
	if err := json.Unmarshal(payload, &e); err != nil {
		return err
	}
	if e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 64 {
		return fmt.Errorf("exit with code %d and signal %d", e.Code, e.Signal)
	}
	if e.Cursor < s.cursor || e.Cursor > maxCount {
		return fmt.Errorf("exit at cursor %d after %d", e.Cursor, s.cursor)
	}
	if ended := e.State == hutch.ProcessExited || e.State == hutch.ProcessFailed; !ended && !(s.follow && e.State.Live()) {
		return fmt.Errorf("exit in state %.20q", e.State)
	}
	s.exit = e
	return nil
}

// time records when the next output was read.
func (s *stream) time(payload []byte) error {
	ms, err := parseCount(payload)
	if err != nil || ms > lastMS || !s.times {
		return fmt.Errorf("a time of %d ms that was asked for: %t, %w", ms, s.times, err)
	}
	s.at = time.UnixMilli(ms).UTC()
	return nil
}

// window records how much stdin the program has read.
func (s *stream) window(payload []byte) error {
	n, err := parseCount(payload)
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

// pump sends stdin, at most window bytes ahead of the program, and closes done when it no longer uses the connection.
// It can outlive the stream by one Read of stdin, which nothing can interrupt. If stdin fails, it closes the
// connection, so that the failure does not look like the end of the input.
func (s *stream) pump(stdin io.Reader, window int, done chan<- struct{}, failed chan<- error) {
	defer close(done)
	buf := make([]byte, HeaderSize+window/4)
	var sent, taken int64
	for {
		for sent-taken > int64(window-window/4) {
			n, open := <-s.room
			if !open {
				return
			}
			taken = n
		}
		n, err := stdin.Read(buf[HeaderSize:])
		if n > 0 {
			if s.conn.w.WriteBehind(TypeStdin, buf[:HeaderSize+n]) != nil {
				return
			}
			sent += int64(n)
		}
		if err == io.EOF {
			s.conn.w.Write(TypeStdinEnd, nil)
			return
		}
		if err != nil {
			failed <- callerError{fmt.Errorf("read stdin: %w", err)}
			s.conn.Close()
			return
		}
	}
}

func finished(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
