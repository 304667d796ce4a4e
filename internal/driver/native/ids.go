package native

import (
	"math/rand/v2"

	"hutch"
)

// These are the host's ids for instances if the daemon is root. They are above the ids that systemd and newuidmap
// assign to users and containers, and below those that systemd reserves for files of images on disk. All are below
// 2^31, because some programs read higher ids as negative numbers. Two daemons do not know each other, so ids are drawn
// from the whole range. The chance that two of a hundred instances share an id is below one in ten thousand, and
// sharing would only merge some counters.
//
// An instance of an image has many ids: one for each id that the image can use, and the agent's, which is the last. So
// two daemons together are likely to use some ids twice. That does no harm, because the kernel counts the use of such
// an id for each user namespace, and so for each instance.
const (
	firstUID   = 2_000_000_000
	pairs      = 40_000_000
	firstRange = firstUID + 2*pairs
	ranges     = (foreignUID - firstRange) / rangeIDs
	foreignUID = 0x7ffe0000 // systemd's FOREIGN_UID_BASE
)

// takeUID returns the first of two ids that no other instance has. If whole is set, it returns the first id of a whole
// range.
func (d *Driver) takeUID(whole bool) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, step, count := firstUID, 2, pairs
	if whole {
		first, step, count = firstRange, rangeIDs, ranges
	}
	start := rand.IntN(count)
	for n := range count {
		if uid := first + step*((start+n)%count); !d.takenLocked(uid, step) {
			d.uids[uid] = true
			return uid, nil
		}
	}
	return 0, hutch.Errorf(hutch.Exhausted, "no user ids are left for another native sandbox of this kind: destroy one, or use the runtime gvisor")
}

// takenLocked reports whether an instance has any of these ids. Instances of an older daemon can have ranges of another
// size.
func (d *Driver) takenLocked(uid, size int) bool {
	if size == 2 {
		return d.uids[uid]
	}
	for other := range d.uids {
		if other >= firstRange && max(uid, other)-min(uid, other) < size {
			return true
		}
	}
	return false
}

// keepUID remembers ids that an instance already has.
func (d *Driver) keepUID(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uids[uid] = true
}

func (d *Driver) freeUID(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.uids, uid)
}
