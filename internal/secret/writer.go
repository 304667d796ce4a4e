package secret

import "io"

// Writer covers a log with the redactor of the moment. What is written to it
// must come a whole line at a time, as package slog's handlers do it: so it sees
// everything that they would write, whatever it was made from.
func Writer(w io.Writer, redactor func() *Redactor) io.Writer { return lineWriter{w, redactor} }

type lineWriter struct {
	w        io.Writer
	redactor func() *Redactor
}

func (l lineWriter) Write(line []byte) (int, error) {
	if _, err := l.w.Write(l.redactor().Bytes(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
