package engine

import (
	"context"
	"io"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/instance"
	"hutch/internal/saved"
)

// A sandbox whose agent is from another version of Hutch cannot be used. When the daemon starts, it stops such a
// sandbox and keeps its files, as after an idle time. If that fails, the sandbox continues to run, unused, until the
// other version of Hutch stops it: an upgrade removes nothing.

// stoppedOutdated is the reason of a sandbox that was stopped because another version of Hutch had started it.
const stoppedOutdated = "it was started by another version of Hutch, whose agent this server cannot use: its files are kept, its processes have ended; the next use starts it again"

// stopOutdated stops a sandbox without its agent. No other caller uses it yet.
func (e *lifecycle) stopOutdated(ctx context.Context, s *sandbox, inst driver.Instance) error {
	if err := e.keepWithoutAgent(ctx, s, inst); err != nil {
		return err
	}
	if err := e.volumes.noteUnsaved(s); err != nil {
		return err
	}
	if err := s.CommitSleep(e.ctx, hutch.Stopped, stoppedOutdated); err != nil {
		return err
	}
	e.log.Warn("stopped, since another version of Hutch started it; its files are kept", "sandbox", s.ID())
	e.happened(ctx, s, "Stopped", "another version of Hutch started it: its files are kept")
	if err := instance.Destroy(inst); err != nil {
		e.log.Error("free the instance of a stopped sandbox", "sandbox", s.ID(), "err", err)
	}
	return nil
}

// keepWithoutAgent saves the files of a sandbox for a stop, in the way that its runtime supports.
func (e *lifecycle) keepWithoutAgent(ctx context.Context, s *sandbox, inst driver.Instance) error {
	if f, ok := driver.As[driver.FileSaver](inst); ok {
		return e.saved.WriteMemory(s.Key(), func(dir string) error { return f.SaveFiles(ctx, dir) })
	}
	a, ok := driver.As[driver.Archiver](inst)
	if !ok {
		return hutch.Errorf(hutch.Unsupported, "the runtime cannot keep files without an agent")
	}
	v := s.Record()
	return e.saved.WriteArchive(v.Key, saved.Most(v.Sandbox.Limits), func(w io.Writer) error { return a.Archive(ctx, w) })
}
