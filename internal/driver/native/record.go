package native

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"hutch/internal/linux/pidfd"
)

// record is the stored form of an instance. It is written to a file next to the instance's folder, and it is the
// handle.
type record struct {
	PID     int    `json:"pid"`     // pid of the first process, as the daemon sees it
	Started uint64 `json:"started"` // start time of that process, because another process can get its pid later
	Boot    string `json:"boot"`    // boot id of the machine, because start times are relative to the boot
	UID     int    `json:"uid,omitempty"`
	Image   bool   `json:"image,omitempty"` // the root is an image's EROFS file
}

const (
	recordFile = "place.json"
	socketFile = "agent.sock"
)

// machineBoot identifies this boot of the machine.
var machineBoot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// newRecord returns the record of a process that was just started. uid is the first of the process's ids.
func newRecord(pid, uid int) (r record, err error) {
	r.PID, r.UID = pid, uid
	if r.Boot, err = machineBoot(); err != nil {
		return r, err
	}
	r.Started, err = pidfd.Started(pid)
	return r, err
}

// process returns the instance's first process, if it is alive.
func (r record) process() (*pidfd.Process, error) {
	boot, err := machineBoot()
	if err != nil {
		return nil, err
	}
	if r.PID <= 0 || r.Boot != boot {
		return nil, os.ErrProcessDone
	}
	return pidfd.Open(r.PID, r.Started)
}

// write writes the record into the instance's folder. If the daemon is killed meanwhile, a partial record means the
// same as no record: the instance has no configuration. The record need not survive a reboot, because no instance does.
func (r record) write(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordFile), b, 0o600)
}

func readRecord(dir string) (r record, err error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}
