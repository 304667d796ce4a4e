package saved

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hutch/internal/durable"
	"hutch/internal/travel"
)

// A note of an arrival is written before the directory of the fleet is asked to assign a sandbox to this machine, and
// removed when the answer is known. As long as the note exists, no sweep removes the files, because the sandbox can be
// here although the store does not show it yet.

func (d *Dir) arrivals() string { return filepath.Join(d.path, "arrivals") }

const arrivalSuffix = ".json"

func (d *Dir) arrival(key string) string { return filepath.Join(d.arrivals(), key+arrivalSuffix) }

// NoteArrival writes the note of a sandbox whose files are here.
func (d *Dir) NoteArrival(a travel.Arrival) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return durable.Replace(d.arrival(a.RecordKey), text)
}

// ForgetArrival removes a note; the files stay.
func (d *Dir) ForgetArrival(key string) error {
	err := os.Remove(d.arrival(key))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, durable.Sync(d.arrivals()))
}

// Arrivals returns all notes, by the keys of the records. If some notes cannot be read, it returns the others, and its
// error is travel.ErrBadNote.
func (d *Dir) Arrivals() (map[string]travel.Arrival, error) {
	entries, err := os.ReadDir(d.arrivals())
	if err != nil {
		return nil, err
	}
	all := map[string]travel.Arrival{}
	var bad error
	for _, e := range entries {
		key, isNote := strings.CutSuffix(e.Name(), arrivalSuffix)
		if !isNote { // a half-written note
			continue
		}
		text, err := os.ReadFile(d.arrival(key))
		if errors.Is(err, os.ErrNotExist) { // it was removed meanwhile
			continue
		}
		var a travel.Arrival
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err == nil && a.RecordKey != key {
			err = errors.New("it is the note of another sandbox")
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("%w: remove %s if no sandbox is missing: %w", travel.ErrBadNote, d.arrival(key), err))
			continue
		}
		all[key] = a
	}
	return all, bad
}
