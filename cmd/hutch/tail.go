package main

import (
	"bytes"
	"context"
	"slices"

	"hutch"
)

// printTail prints the last lines of a process's output so far, and returns the cursor to continue from.
func printTail(ctx context.Context, svc hutch.Service, req hutch.LogsRequest, lines int, out func(hutch.Output) error) (int64, error) {
	var kept []hutch.Output // everything that the server keeps: a MiB and more
	req.Follow = false
	next, err := svc.Logs(ctx, req, func(o hutch.Output) error {
		o.Data = bytes.Clone(o.Data)
		kept = append(kept, o)
		return nil
	})
	if err != nil {
		return next, err
	}
	for _, o := range lastLines(kept, lines) {
		if err := out(o); err != nil {
			return next, err
		}
	}
	return next, nil
}

// lastLines returns the last lines of output; the last one can be unfinished.
func lastLines(all []hutch.Output, lines int) []hutch.Output {
	if lines == 0 {
		return nil
	}
	ends := 0
	for i, o := range slices.Backward(all) {
		for at, b := range slices.Backward(o.Data) {
			last := i == len(all)-1 && at == len(o.Data)-1
			if b != '\n' || last {
				continue
			}
			if ends++; ends == lines {
				o.Data = o.Data[at+1:]
				return append([]hutch.Output{o}, all[i+1:]...)
			}
		}
	}
	return all
}

// stampLines returns an output function that prints the time before each line of a stream. A line that arrives in
// pieces has the time of its first piece.
func stampLines(out func(hutch.Output) error) func(hutch.Output) error {
	within := map[hutch.Stream]bool{} // a line has begun
	return func(o hutch.Output) error {
		stamp := o.Time.UTC().Format("2006-01-02T15:04:05.000Z ")
		var text []byte
		for line := range bytes.Lines(o.Data) {
			if !within[o.Stream] {
				text = append(text, stamp...)
			}
			text = append(text, line...)
			within[o.Stream] = line[len(line)-1] != '\n'
		}
		o.Data = text
		return out(o)
	}
}
