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

// says reports whether the output ends with a text, in lower case.
func (l *lastOutput) says(text string) bool {
	return bytes.Contains(bytes.ToLower(l[0]), []byte(text)) || bytes.Contains(bytes.ToLower(l[1]), []byte(text))
}

// reached names the limit that made a command fail without killing it, or returns "". No runtime reports which command
// reached it. So it counts if the command says that it has failed for this reason; and for the disk, if that is full. A
// program can claim it, in its own result.
func (e *lifecycle) reached(ctx context.Context, s *sandbox, words *lastOutput) string {
	if (words.says("no space left on device") || words.says("enospc")) && e.isDiskFull(ctx, s) {
		return "disk"
	}
	if words.says("fork") && words.says("resource temporarily unavailable") || words.says("cannot fork") {
		return "pids"
	}
	return ""
}

// isDiskFull reports whether less than a 32nd of the disk of a sandbox is free.
func (e *lifecycle) isDiskFull(ctx context.Context, s *sandbox) bool {
	inst := s.Instance()
	if inst == nil {
		return false
	}
	u, err := inst.Usage(ctx)
	most := int64(s.Sandbox().Limits.Disk) << 20
	return err == nil && most > 0 && u.Disk >= most-most/32
}
