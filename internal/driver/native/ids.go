package native

import "math/rand/v2"

// The host's ids for places when the daemon is root. They are above those that systemd and newuidmap assign, and
// below 2^31, because some programs take higher ones for negative. Two daemons do not know each other, so ids are
// drawn from the whole range: the chance that two of a hundred places share one is below one in ten thousand, and
// sharing would only merge some counters.
//
// A place of an image has many ids, one for each that the image can use, so two daemons together are likely to use some
// twice. The kernel counts what such an id uses for each user namespace, and so for each place.
const (
	firstUID   = 2_000_000_000
	pairs      = 40_000_000
	firstRange = firstUID + 2*pairs
	ranges     = (1<<31 - firstRange) / imageIDs
)

// takeUID returns the first of two ids, or of a whole range, that no other place has.
func (d *Driver) takeUID(whole bool) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		uid := firstUID + 2*rand.IntN(pairs)
		if whole {
			uid = firstRange + imageIDs*rand.IntN(ranges)
		}
		if !d.uids[uid] {
			d.uids[uid] = true
			return uid
		}
	}
}

// keepUID remembers ids that a place has already.
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
