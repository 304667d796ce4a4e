package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"hutch"
	"hutch/internal/text"
)

// AsciicastType is the media type of a recording.
const AsciicastType = "application/x-asciicast"

// Asciicast writes the output of a terminal as a recording that players of asciicast version 2 show: a line with the
// size, then a line for each piece of output with its time since the beginning.
//
// A recording is text. Bytes that are not UTF-8 become U+FFFD; a character that two pieces share is kept whole.
type Asciicast struct {
	w     io.Writer
	began time.Time
	last  time.Duration // time of the newest line: a clock that was set back must not move a player back
	held  []byte        // the first bytes of an incomplete character
}

// NewAsciicast returns the recording of a process, and writes its first line.
func NewAsciicast(w io.Writer, p hutch.Process) (*Asciicast, error) {
	if p.Terminal == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "the process %s has no terminal, and so no recording: read its output with logs", p.ID)
	}
	title := p.Name
	if title == "" {
		title = p.Command
	}
	return &Asciicast{w: w, began: p.StartTime}, line(w, map[string]any{
		"version": 2, "width": p.Terminal.Columns, "height": p.Terminal.Rows, "timestamp": p.StartTime.Unix(), "title": title, "env": map[string]string{"TERM": "xterm-256color"},
	})
}

// Output writes a piece of output, which must have a time.
func (a *Asciicast) Output(o hutch.Output) error {
	a.last = max(a.last, o.Time.Sub(a.began))
	if o.Lost > 0 {
		a.held = nil
		if err := a.event("m", fmt.Sprintf("%d bytes were not kept", o.Lost)); err != nil {
			return err
		}
	}
	data := append(a.held, o.Data...)
	whole := len(data) - text.Unfinished(data)
	a.held = bytes.Clone(data[whole:])
	return a.text(data[:whole])
}

// Close writes the remaining bytes.
func (a *Asciicast) Close() error { return a.text(a.held) }

func (a *Asciicast) text(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return a.event("o", string(bytes.ToValidUTF8(data, []byte("\uFFFD"))))
}

func (a *Asciicast) event(kind, text string) error {
	return line(a.w, [3]any{a.last.Seconds(), kind, text})
}

func line(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}
