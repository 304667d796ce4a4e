package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// Query chooses records. The zero Query chooses all.
type Query struct {
	Since, Until time.Time // the operation began at Since or later, and before Until
	Token        string    // id or name
	Owner        string
	Sandbox      string
	Verb         string // ignoring case
	Result       string
	After        int64 // only lines after the line with this number
	Limit        int   // 0 for no limit
	// Running selects operations that have not ended. Otherwise they are left out, so that each record is a finished
	// operation or a mark.
	Running bool
}

// Reader is a log that can be read.
type Reader interface {
	// Query passes the chosen records to out, in the order in which they were written, until out returns an error.
	Query(ctx context.Context, q Query, out func(Record) error) error
	// Follow continues with new records, until ctx is done, out returns an error, or the limit is reached.
	Follow(ctx context.Context, q Query, out func(Record) error) error
}

// Query implements Reader. It holds one record at a time.
func (l *Log) Query(ctx context.Context, q Query, out func(Record) error) error {
	_, err := l.scan(ctx, q, nil, out)
	return err
}

// Follow implements Reader.
func (l *Log) Follow(ctx context.Context, q Query, out func(Record) error) error {
	r, err := l.reader(q)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		grown := l.growth() // before reading, so that a line that is written meanwhile is not missed
		n, err := l.scan(ctx, q, r, out)
		if err != nil {
			return err
		}
		if q.Limit > 0 {
			if q.Limit -= n; q.Limit == 0 {
				return nil
			}
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// growth returns a channel that is closed when the next line is written.
func (l *Log) growth() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}

// reader returns a reader at the first possible record of a query.
func (l *Log) reader(q Query) (*reader, error) {
	var name string
	if !q.Since.IsZero() {
		// A line is in the file of the day when it was written, which is not before the operation began. The previous
		// file is read too, in case the clock was set back.
		name = q.Since.UTC().Add(-day).Format(dayFormat) + extension
	}
	if q.After > 0 {
		at, err := fileOf(l.opt.Dir, q.After)
		if err != nil {
			return nil, err
		}
		name = max(name, at)
	}
	return readFrom(l.opt.Dir, name, 0)
}

// scan passes the chosen records from r's position on to out, and returns how many there were.
func (l *Log) scan(ctx context.Context, q Query, r *reader, out func(Record) error) (n int, err error) {
	if r == nil {
		if r, err = l.reader(q); err != nil {
			return 0, err
		}
		defer r.Close()
	}
	words := q.words()
	for q.Limit == 0 || n < q.Limit {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		rec, ok := l.chosen(q, words, line)
		if !ok {
			continue
		}
		if err := out(rec); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// words returns texts that a matching line must contain: searching for them costs a tenth of decoding the line.
func (q Query) words() (words [][]byte) {
	for name, value := range map[string]string{"owner": q.Owner, "sandbox": q.Sandbox, "result": q.Result} {
		if value != "" {
			b, _ := json.Marshal(value) // cannot fail for a string
			words = append(words, slices.Concat([]byte(`"`+name+`":`), b))
		}
	}
	return words
}

func (l *Log) chosen(q Query, words [][]byte, line []byte) (rec Record, ok bool) {
	for _, w := range words {
		if !bytes.Contains(line, w) {
			return rec, false
		}
	}
	if json.Unmarshal(line, &rec) != nil { // a malformed line; Verify reports it
		return rec, false
	}
	return rec, q.match(rec) && (rec.Phase == Begin) == q.Running && (!q.Running || l.running(rec.Seq))
}

func (l *Log) running(seq int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.open[seq]
	return ok
}

func (q Query) match(r Record) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return r.Seq > q.After &&
		(q.Since.IsZero() || !r.Time.Before(q.Since)) && (q.Until.IsZero() || r.Time.Before(q.Until)) &&
		(is(q.Token, r.Token) || is(q.Token, r.TokenName)) && is(q.Owner, r.Owner) && is(q.Sandbox, r.Sandbox) &&
		(q.Verb == "" || strings.EqualFold(q.Verb, r.Verb)) && is(q.Result, r.Result)
}
