// Package box is one sandbox in the daemon's memory: its record, its state, its uses,
// and its deadlines. It runs nothing itself: the engine makes instances, speaks to
// agents and writes files, and reports the results to the box.
//
// # States
//
// The status of a box changes along these moves and no others (see moves):
//
//	creating → running ⇄ stopped, hibernated
//	running, stopped, hibernated → failed → running
//	all of them → destroyed
//
// A box that is running is in one of four conditions:
//
//	attached    it has an instance and an agent: uses begin at once
//	paused      it has an instance that is frozen, and no agent: the next use resumes it
//	detached    it has no instance, for the moment: the holder of the lifecycle
//	            lock is saving it, and uses wait for that lock
//	destroying  it has no instance any more: ReleaseInstance was called
//
// # Uses
//
// BeginUse counts a use and returns the agent; EndUse ends it. A use holds no
// lock. A box in use is never detached, so it is never put to sleep; it can be
// destroyed, and its instance can die.
//
// # Sleep and wake
//
// Only the holder of the lifecycle lock calls these, except CancelSleep.
//
//	BeginSleep   records that files or memory are being saved, and how to stop that
//	CancelSleep  stops the saving, because the box is to be destroyed; LockToEnd calls it
//	Detach       takes an idle box out of use, unless it was used since BeginSleep
//	CommitSleep  writes to disk that the box sleeps; then its instance can go
//	Attach       brings a detached or paused box back into use: the sleep is
//	             cancelled, or the pause is over
//	CommitRun    writes to disk that the box runs in a new instance: it was
//	             created, or woke
//
// # Locks
//
// A box has four locks, all taken in lock.go only. Other packages take only the
// lifecycle lock.
//
//   - The lifecycle lock belongs to the one call that changes the state of the
//     box, for all the slow work of that change: Lock, Unlock.
//   - saving is held while the record is written, so that the record on disk is
//     the newest.
//   - connecting is held while the gateway of the box is made.
//   - mu guards the fields. Nothing waits while it is held: no disk, no agent, no
//     runtime, no other lock.
//
// Order: lifecycle lock, saving or connecting, the engine's table, mu.
package box
