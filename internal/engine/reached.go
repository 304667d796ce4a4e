package engine

import (
	"bytes"
	"context"

	"hutch"
)

// lastOutput is the end of each stream of a command's output.
type lastOutput [2][]byte

const maxLastOutput = 1 << 10 // bytes of each stream

// add adds the next piece.
func (l *lastOutput) add(o hutch.Output) {
	end := &l[0]
	if o.Stream == hutch.Stderr {
		end = &l[1]
	}
	data := o.Data[max(0, len(o.Data)-maxLastOutput):]
	if over := len(*end) + len(data) - maxLastOutput; over > 0 {
		*end = (*end)[:copy(*end, (*end)[over:])]
	}
	*end = append(*end, data...)
}

// tee returns a function that adds pieces, and passes them on.
func (l *lastOutput) tee(out func(hutch.Output) error) func(hutch.Output) error {
	return func(o hutch.Output) error {
		l.add(o)
		return out(o)
	}
}

// says reports whether the output contains a text. The text is in lower case.
func (l *lastOutput) says(text string) bool {
	return bytes.Contains(bytes.ToLower(l[0]), []byte(text)) || bytes.Contains(bytes.ToLower(l[1]), []byte(text))
}

// reached names the limit that made a command fail without killing it, or returns "". No runtime reports which command
// reached a limit, so the command's own output decides: it must say that it failed for this reason. For the disk
// limit, the disk must also be full. A program can print this without having reached the limit, but that affects only
// its own result.
func (s *sandbox) reached(ctx context.Context, words *lastOutput) string {
	if (words.says("no space left on device") || words.says("enospc")) && s.isDiskFull(ctx) {
		return "disk"
	}
	if words.says("fork") && words.says("resource temporarily unavailable") || words.says("cannot fork") {
		return "pids"
	}
	return ""
}

// isDiskFull reports whether less than a 32nd of the disk of a sandbox is free.
func (s *sandbox) isDiskFull(ctx context.Context) bool {
	inst := s.Instance()
	if inst == nil {
		return false
	}
	u, err := inst.Usage(ctx)
	most := int64(s.Sandbox().Limits.Disk) << 20
	return err == nil && most > 0 && u.Disk >= most-most/32
}
