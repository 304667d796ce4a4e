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

// NoteUsage adds a reading of an instance to the account of the box, if the box still runs in that instance. The
// account grows by the difference from the previous reading.
func (b *Box) NoteUsage(inst driver.Instance, u driver.Usage) {
	b.locked(func() {
		if b.inst == inst {
			b.rec.Used.Note(time.Now(), u)
		}
	})
}

// Used returns the usage of the box up to the last reading, with its network traffic.
func (b *Box) Used() hutch.Usage {
	traffic := b.Traffic()
	return read(b, func() hutch.Usage {
		rec := b.rec
		rec.Traffic = traffic
		return rec.Usage()
	})
}

// Unspent returns the image of the box, and the part of its usage that Spent has not received yet.
func (b *Box) Unspent() (image string, more hutch.Usage) {
	u := b.Used()
	b.locked(func() { image, more = b.rec.Sandbox.Image, u.Since(b.spent) })
	return image, more
}

// spend passes the new usage of the box to Spent. The caller holds the lock saving.
func (b *Box) spend(u hutch.Usage) {
	var image string
	var more hutch.Usage
	b.locked(func() {
		image, more = b.rec.Sandbox.Image, u.Since(b.spent)
		b.spent, b.spentAt = u, time.Now()
	})
	if b.opt.Spent != nil {
		b.opt.Spent(image, more)
	}
}

// saveEvery is how often the record of a running box is written only to save its usage of CPU and memory.
const saveEvery = 10 * time.Minute

// Unsaved reports whether the box ran something or had network traffic since its record was written, or has run for
// more than saveEvery since then.
func (b *Box) Unsaved() bool {
	traffic := b.Traffic()
	return read(b, func() bool {
		return b.rec.Used.Executions != b.spent.Executions || traffic != b.rec.Traffic || b.inst != nil && time.Since(b.spentAt) > saveEvery
	})
}

// Resources returns the present use of resources from a reading. CPU is the average since the last reading that is at
// least a tenth of a second old.
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

// NoteKills reports whether the kernel has killed a process for lack of memory since
// the last call; all is the number of such kills so far.
func (b *Box) NoteKills(all int) (more bool) {
	b.locked(func() {
		more = all > b.usage.ooms
		b.usage.ooms = all
	})
	return more
}

// NoteHealth records whether an agent answers, and returns the previous value. It returns false if the box has another
// agent now, or none.
func (b *Box) NoteHealth(agent *wire.Client, health hutch.Health) (before hutch.Health, ok bool) {
	b.locked(func() {
		if before, ok = b.health, b.agent == agent; ok {
			b.health = health
		}
	})
	return before, ok
}

// RequestSecrets records the secrets that a program of the box requests, and reports whether one of them is new.
func (b *Box) RequestSecrets(uses []string) (changed bool) {
	b.locked(func() {
		for _, use := range uses {
			_, name, err := hutch.ParseSecretUse(use)
			if err == nil && !slices.Contains(b.rec.RequestedSecrets, name) && len(b.rec.RequestedSecrets) < hutch.MaxSecretUses {
				b.rec.RequestedSecrets, changed = append(slices.Clip(b.rec.RequestedSecrets), name), true
			}
		}
		if changed {
			b.noteSecrets()
		}
	})
	return changed
}

// noteSecrets collects the names of the secrets that the box was given. The caller holds mu, or is the only one that
// has the box.
func (b *Box) noteSecrets() {
	names := slices.Clone(b.rec.RequestedSecrets)
	for _, use := range b.rec.Secrets {
		if _, name, err := hutch.ParseSecretUse(use); err == nil {
			names = append(names, name)
		}
	}
	b.secrets.Store(&names)
}

// SecretNames returns the names of the secrets that programs of the box have received. It takes no
// lock, because gateways call it at any time. The list is replaced, never changed.
func (b *Box) SecretNames() []string {
	if names := b.secrets.Load(); names != nil {
		return *names
	}
	return nil
}
