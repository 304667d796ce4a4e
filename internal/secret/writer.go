package secret

import "io"

// Writer filters a log with the present redactor. Each write must be a whole line, as package slog's handlers do it,
// so that the redactor sees every line complete.
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
