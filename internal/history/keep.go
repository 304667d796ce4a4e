package history

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"hutch"
	"hutch/internal/durable"
)

// saveEvery is the time between two saves. Each save writes all samples, at most 10 KB per sandbox. A killed server loses
// the samples since the last save.
const saveEvery = 5 * time.Minute

// savedRow is a row in the file.
type savedRow struct {
	Owner, Sandbox string
	CreatedAt      int64 // Unix time in ms
	Each           int
	Samples        []reading
}

// save writes the file.
func (h *History) save() {
	if h.opt.File == "" {
		return
	}
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(h.export())
	if err == nil {
		err = durable.Replace(h.opt.File, b.Bytes())
	}
	if err != nil {
		h.opt.Log.Warn("keep what sandboxes used", "err", err)
	}
}

func (h *History) export() []savedRow {
	h.mu.Lock()
	defer h.mu.Unlock()
	rows := make([]savedRow, 0, len(h.rows))
	for key, r := range h.rows {
		rows = append(rows, savedRow{key.owner, key.sandbox, r.now.CreatedAt.UnixMilli(), r.each, slices.Clone(r.samples)})
	}
	return rows
}

// load reads the file. Unreadable samples are dropped, so that the server can start without them.
func (h *History) load() {
	if h.opt.File == "" {
		return
	}
	content, err := os.ReadFile(h.opt.File)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var rows []savedRow
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(content)).Decode(&rows)
	}
	if err != nil {
		h.opt.Log.Warn("read what sandboxes used before", "err", err)
		return
	}
	for _, s := range rows {
		if s.Each < 1 || len(s.Samples) > maxSamples {
			continue
		}
		h.rows[name{s.Owner, s.Sandbox}] = &row{now: hutch.Stats{CreatedAt: time.UnixMilli(s.CreatedAt)}, samples: s.Samples, each: s.Each}
	}
}
