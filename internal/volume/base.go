package volume

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"hutch"
	"hutch/internal/bucket"
	"hutch/internal/durable"
)

// base has the files of a volume that were equal to an object of its bucket at the last exchange, by path. A file that
// differs from the base was changed here, and an object that differs was changed in the bucket.
type base map[string]pair

// pair is a file and its object.
type pair struct {
	ETag string `json:"etag"`
	Sum  string `json:"sha256"` // sum of the file
}

// readBase returns the base that rec, the record of a volume, names.
func (s *Store) readBase(k key, rec record) (base, error) {
	b := base{}
	if rec.Base == "" {
		return b, nil
	}
	text, err := os.ReadFile(filepath.Join(s.folder(k), rec.Base))
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		return nil, damaged(k.name, err)
	}
	return b, nil
}

// writeBase writes a new base next to that of rec, and returns the function that makes it the base of a record.
func (s *Store) writeBase(k key, rec record, b base) (use func(*record), err error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	n := rec.Bases + 1
	name := fmt.Sprintf("base%d.json", n)
	if err := durable.Replace(filepath.Join(s.folder(k), name), text); err != nil {
		return nil, durable.Explained(err, s.dir)
	}
	return func(r *record) { r.Base, r.Bases = name, n }, nil
}

// listing has the objects of a bucket by path, and the folders that have an object of their own.
type listing struct {
	files   map[string]bucket.Object
	folders map[string]bool
	parents map[string]bool // parents of the files
}

// add adds an object, whose key must be a path in the volume.
func (l *listing) add(o bucket.Object) error {
	name, folder := strings.CutSuffix(o.Key, "/")
	if name == "" && o.Size == 0 {
		return nil // the prefix itself
	}
	if !local(name) || path.Clean(name) != name {
		return hutch.Errorf(hutch.Denied, "the bucket's object %.200q cannot be a file of a volume: use keys without empty parts, . and .., or a prefix that does not have it", o.Key)
	}
	if folder && o.Size > 0 {
		return hutch.Errorf(hutch.Denied, "the bucket's object %.200q ends with a slash, as folders do, but has content: give it another key", o.Key)
	}
	if _, twice := l.files[name]; twice {
		return hutch.Errorf(hutch.Conflict, "the bucket's object %.200q would be there twice, or be a folder and a file: give one of them another key", o.Key)
	}
	if folder {
		l.folders[name] = true
	} else {
		l.files[name] = o
	}
	for above := path.Dir(name); above != "." && !l.parents[above]; above = path.Dir(above) {
		l.parents[above] = true
	}
	return nil
}

// check refuses a listing in which a file is also a folder.
func (l *listing) check() error {
	for name := range l.files {
		if l.parents[name] || l.folders[name] {
			return hutch.Errorf(hutch.Conflict, "the bucket's object %.200q is a file, and the folder of others: give one of them another key", name)
		}
	}
	return nil
}

// blocks reports whether an object is where a folder above name would have to be.
func (l *listing) blocks(name string) bool {
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		if _, file := l.files[above]; file {
			return true
		}
	}
	return false
}

// equals reports whether the objects are exactly those of a base.
func (l *listing) equals(b base) bool {
	if len(l.files) != len(b) {
		return false
	}
	for name, o := range l.files {
		if p, ok := b[name]; !ok || p.ETag != o.ETag {
			return false
		}
	}
	return true
}
