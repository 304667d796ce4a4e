package box

import (
	"slices"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// Ran counts a command, a run of code or a process.
func (b *Box) Ran() { b.locked(func() { b.rec.Used.Executions++ }) }

// NoteUsage adds a reading of an instance to the account of the box, if it still
// runs in that. What is used between two readings is told from their difference.
func (b *Box) NoteUsage(inst driver.Instance, u driver.Usage) {
	b.locked(func() {
		if b.inst == inst {
			b.rec.Used.Note(time.Now(), u)
		}
	})
}

// Used is what the box has used up to the last reading, and what went over its
// network.
func (b *Box) Used() hutch.Usage {
	traffic := b.Traffic()
	u := read(b, func() hutch.Usage { return b.rec.Used.Usage })
	u.NetworkSent, u.NetworkReceived = traffic.Sent, traffic.Received
	return u
}

// Unsaved reports, once, whether the box ran something since it was last asked, or
// anything went over its network since its record was written.
func (b *Box) Unsaved() bool {
	traffic := b.Traffic()
	return read(b, func() bool {
		before := b.saved
		b.saved = b.rec.Used.Executions
		return b.saved != before || traffic != b.rec.Traffic
	})
}

// Resources turns a reading into what is used now: CPU is the share since the last
// reading that is at least a tenth of a second old.
func (b *Box) Resources(u driver.Usage) hutch.Resources {
	return read(b, func() hutch.Resources {
		now := time.Now()
		if b.usage.at.IsZero() {
			b.usage.at = b.since
		}
		if d := now.Sub(b.usage.at).Seconds(); d >= 0.1 {
			b.usage.share = max(0, 100*(u.CPUSeconds-b.usage.cpu)/d)
			b.usage.at, b.usage.cpu = now, u.CPUSeconds
		}
		return hutch.Resources{CPU: b.usage.share, Memory: float64(u.Memory) / (1 << 20)}
	})
}

// NoteKills reports whether the kernel has killed for lack of memory since the last
// call; all is how often it ever has.
func (b *Box) NoteKills(all int) (more bool) {
	b.locked(func() {
		more = all > b.usage.ooms
		b.usage.ooms = all
	})
	return more
}

// NoteHealth notes whether an agent answers, and returns what was known before. It
// is false when the box has another agent by now, or none.
func (b *Box) NoteHealth(agent *wire.Client, health hutch.Health) (before hutch.Health, ok bool) {
	b.locked(func() {
		if before, ok = b.health, b.agent == agent; ok {
			b.health = health
		}
	})
	return before, ok
}

// RequestSecrets notes secrets that a program of the box is given, and reports
// whether that is new.
func (b *Box) RequestSecrets(uses []string) (changed bool) {
	b.locked(func() {
		for _, use := range uses {
			_, name, err := hutch.ParseSecretUse(use)
			if err == nil && !slices.Contains(b.rec.Lent, name) && len(b.rec.Lent) < hutch.MaxSecretUses {
				b.rec.Lent, changed = append(slices.Clip(b.rec.Lent), name), true
			}
		}
		if changed {
			b.noteSecrets()
		}
	})
	return changed
}

// noteSecrets gathers the names of the secrets that the box was given. The caller
// holds mu, or is the only one to know the box.
func (b *Box) noteSecrets() {
	names := slices.Clone(b.rec.Lent)
	for _, use := range b.rec.Secrets {
		if _, name, err := hutch.ParseSecretUse(use); err == nil {
			names = append(names, name)
		}
	}
	b.secrets.Store(&names)
}

// SecretNames are the secrets that the box was given. It takes no lock: gateways
// ask at any time. The list is never changed, but replaced.
func (b *Box) SecretNames() []string {
	if names := b.secrets.Load(); names != nil {
		return *names
	}
	return nil
}
