package installation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hutch/internal/datadir"
	"hutch/internal/store"
)

const (
	// settleTries is how many times the store is read at most until no sandbox falls asleep or wakes between two reads. There is no pause
	// between reads: it would only give sandboxes more time to change.
	settleTries = 300
	// mostReopened is how many times the files of one sandbox are opened again because it fell asleep again.
	mostReopened = 20
)

// server is the folder of a server.
type server struct {
	name    string
	node    string            // the server's name in a shared database; "" for a store of its own
	records map[string]record // by key, from the last reading; nil if the database is not read
	image   []byte            // copy of the server's own store
}

type record struct {
	id         string
	generation string
	sleep      bool
	sum        [sha256.Size]byte // of the whole record
}

// server reads the store of a server's folder for the first time. It returns nil if there is no store in the folder.
func (g *backupContent) server(ctx context.Context, name string) (*server, error) {
	dir := g.data.Path(name)
	member, shares, err := datadir.ReadMembership(dir)
	if err != nil {
		return nil, err
	}
	if shares {
		g.manifest.Node = member.Node
		s := &server{name: name, node: member.Node}
		if g.database == nil {
			if g.withDatabase {
				return nil, errDatabaseNeeded
			}
			return s, nil
		}
		return s, s.read(ctx, g)
	}
	if _, err := os.Stat(datadir.Database(dir)); err != nil {
		return nil, nil
	}
	s := &server{name: name}
	return s, s.read(ctx, g)
}

func (s *server) read(ctx context.Context, g *backupContent) error {
	if s.node != "" {
		content, err := g.database.Refresh(ctx)
		if err != nil {
			return err
		}
		if g.withDatabase {
			g.manifest.Database = &content
		}
		s.records = map[string]record{}
		return g.database.Records(ctx, s.node, s.add)
	}
	list, image, err := g.dump(ctx, datadir.Database(g.data.Path(s.name)))
	if err != nil {
		return err
	}
	s.records, s.image = map[string]record{}, image
	for _, r := range list {
		if err := s.add(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) add(r store.Record) error {
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	id := r.Sandbox.ID
	if r.Sandbox.Owner != "" {
		id = r.Sandbox.Owner + "/" + id
	}
	s.records[r.Key] = record{id, r.Generation(), r.Sandbox.Status.Sleeps(), sha256.Sum256(doc)}
	return nil
}

// settle opens the files of sandboxes that fell asleep or woke since the last reading again, and repeats this until no
// sandbox falls asleep or wakes between two reads of the store. It leaves out sandboxes that keep changing, so that no
// sandbox can make a backup fail.
func (s *server) settle(ctx context.Context, g *backupContent) error {
	if s.records == nil { // the records are in a database that is not read
		g.addCopies(g.takeCopies(s.name), func(c checkpointCopy) bool { return !g.hasFiles(s.paths(c.key)) })
		return nil
	}
	reopened := map[string]int{} // by key
	var changing map[string]bool // between the last two reads
	for range settleTries {
		before := s.records
		if err := s.read(ctx, g); err != nil {
			return err
		}
		changing = map[string]bool{}
		wait := false
		for key, r := range s.records {
			if r.sleep && before[key].sum != r.sum {
				changing[key] = true
				reopened[key]++
				wait = wait || reopened[key] <= mostReopened
				if err := s.reopen(g, key); err != nil {
					return err
				}
			}
		}
		if !wait {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	s.finish(g, changing)
	return nil
}

func (s *server) reopen(g *backupContent, key string) error {
	for _, rel := range s.paths(key) {
		g.drop(rel)
		if err := g.walk(rel); err != nil {
			return fmt.Errorf("back up the files of a sandbox: %w", err)
		}
	}
	return nil
}

// paths returns the paths of the files of a sleeping sandbox, below the data folder; package saved writes them.
func (s *server) paths(key string) []string {
	return []string{filepath.Join(s.name, "files", key+".tar"), filepath.Join(s.name, "memory", key)}
}

// hasFiles reports whether the backup has a file or a folder with one of these paths.
func (g *backupContent) hasFiles(paths []string) bool {
	for rel := range g.open {
		if slices.ContainsFunc(paths, func(path string) bool { return isIn(rel, path) }) {
			return true
		}
	}
	return false
}

// finish leaves out files that belong to no sandbox, or to a sandbox that is changing, and adds the store as it was
// last read.
func (s *server) finish(g *backupContent, changing map[string]bool) {
	copies := g.takeCopies(s.name)
	isOf := func(c checkpointCopy) bool {
		r, ok := s.records[c.key]
		return ok && !r.sleep && r.generation == c.generation
	}
	kept := map[string]bool{}
	for key, r := range s.records {
		switch {
		case changing[key]:
			g.manifest.Changing = append(g.manifest.Changing, r.id)
		case r.sleep:
			g.manifest.Asleep++
			for _, rel := range s.paths(key) {
				kept[rel] = true
			}
		case copies[checkpointCopy{key, r.generation}] == nil:
			g.manifest.Awake = append(g.manifest.Awake, r.id)
		}
	}
	for rel := range g.open {
		dir, name, _ := strings.Cut(strings.TrimPrefix(rel, s.name+"/"), "/")
		if dir != "files" && dir != "memory" || !strings.HasPrefix(rel, s.name+"/") {
			continue
		}
		key, _, _ := strings.Cut(name, "/")
		if of := filepath.Join(s.name, dir, key); !kept[of] {
			g.drop(of)
		}
	}
	slices.Sort(g.manifest.Awake)
	slices.Sort(g.manifest.Changing)
	g.addCopies(copies, isOf)
	if s.image != nil {
		g.stores[filepath.Join(s.name, filepath.Base(datadir.Database("")))] = s.image
	}
}

// checkpoints is the folder where a running server puts copies of sandboxes that are awake: see package saved.
const checkpoints = "checkpoints"

// checkpointCopy identifies the original of a copied sandbox. Another sandbox can have the same key by now: see [store.Record.Generation].
type checkpointCopy struct{ key, generation string }

// takeCopies removes the copies of awake sandboxes from the backup, and returns the open files of each copy. Their keys are the paths that
// the files would have if the sandbox slept.
func (g *backupContent) takeCopies(server string) map[checkpointCopy]map[string]*os.File {
	folder := filepath.Join(server, checkpoints)
	all := map[checkpointCopy]map[string]*os.File{}
	for rel, f := range g.open {
		path, ok := strings.CutPrefix(rel, folder+"/")
		if !ok {
			continue
		}
		var c checkpointCopy
		var to string
		if name, file, memory := strings.Cut(path, "/"); memory {
			c.key, c.generation = store.CutCheckpointName(name)
			to = filepath.Join(server, "memory", c.key, file)
		} else {
			c.key, c.generation = store.CutCheckpointName(strings.TrimSuffix(name, ".tar"))
			to = filepath.Join(server, "files", c.key+".tar")
		}
		if all[c] == nil {
			all[c] = map[string]*os.File{}
		}
		all[c][to] = f
		delete(g.open, rel)
	}
	g.drop(folder)
	return all
}

// addCopies adds the copies of sandboxes that are still awake, as the files of sleeping ones.
func (g *backupContent) addCopies(all map[checkpointCopy]map[string]*os.File, awake func(checkpointCopy) bool) {
	for c, files := range all {
		if awake(c) {
			g.manifest.Copied++
			maps.Copy(g.open, files)
			continue
		}
		for _, f := range files {
			f.Close()
		}
	}
}
