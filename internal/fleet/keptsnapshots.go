package fleet

import (
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/travel"
)

// keptSnapshots has the snapshots that are on this node by the directory.
type keptSnapshots struct {
	syncing sync.Mutex // held while the directory is compared with this node
	rounds  sync.Mutex // held while a background round runs

	mu     sync.Mutex
	looked time.Time // when the old copies here were last checked
	all    map[string]keptSnapshot
	old    map[string]bool    // the old copies here: by the directory, these snapshots are on another node or on none
	failed map[string]failure // why a snapshot could not be written to the bucket, or why an old copy stays
}

// failure is the last error of a snapshot.
type failure struct {
	at  time.Time
	why string
}

// keptSnapshot is a snapshot that is on this node by the directory.
type keptSnapshot struct {
	seen  hutch.Snapshot // the snapshot as the server last listed it, to notice changed names
	owner string
	image *travel.Image // nil until the bucket has the snapshot
	old   string        // key of a bad image in the bucket, to be replaced
}

func (k *keptSnapshots) find(id string) (keptSnapshot, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.all[id]
	return s, ok
}

// set notes that this node has a snapshot. It ignores an image that was found bad, although the directory still has
// that image.
func (k *keptSnapshots) set(id string, s keptSnapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if bad := k.all[id].old; bad != "" && s.image != nil && s.image.Key == bad {
		s.image, s.old = nil, bad
	}
	delete(k.failed, id)
	delete(k.old, id)
	k.all[id] = s
}

func (k *keptSnapshots) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.failed, id)
	delete(k.all, id)
}

// noteOld notes that the files of a snapshot here are an old copy.
func (k *keptSnapshots) noteOld(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
	k.old[id] = true
}

// setOld replaces the list of old copies.
func (k *keptSnapshots) setOld(ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.old = map[string]bool{}
	for _, id := range ids {
		k.old[id] = true
	}
}

// isOld reports whether the files of a snapshot here are an old copy.
func (k *keptSnapshots) isOld(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.old[id]
}

// lookNow makes the next round check the old copies.
func (k *keptSnapshots) lookNow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked = time.Time{}
}

// lookDue reports whether it is time to check the old copies. It returns true once for each check.
func (k *keptSnapshots) lookDue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) < copiesEvery {
		return false
	}
	k.looked = time.Now()
	return true
}

// setImage records that the bucket has a snapshot.
func (k *keptSnapshots) setImage(id string, img *travel.Image) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.failed, id)
	if s, ok := k.all[id]; ok {
		if s.old = ""; img == nil && s.image != nil {
			s.old = s.image.Key
		}
		s.image = img
		k.all[id] = s
	}
}

// due reports whether it is time to write a snapshot to the bucket.
func (k *keptSnapshots) due(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.all[id]
	return ok && s.image == nil && time.Since(k.failed[id].at) >= retryKeep
}

// failedWithin reports whether the last error of a snapshot is younger than d.
func (k *keptSnapshots) failedWithin(id string, d time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.failed[id].at) < d
}

// fail notes why a snapshot could not be written, or why an old copy stays, and reports whether the reason is new.
func (k *keptSnapshots) fail(id, why string) (isNew bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	isNew = k.failed[id].why != why
	k.failed[id] = failure{time.Now(), why}
	return isNew
}

// ids lists the ids of the snapshots.
func (k *keptSnapshots) ids() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]string, 0, len(k.all))
	for id := range k.all {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}
