package librechat

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// output is a file that an execution left, or an input file that it did not change.
type output struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Path      string  `json:"path"`
	Storage   string  `json:"storage_session_id"`
	Inherited bool    `json:"inherited,omitempty"`
	From      *origin `json:"modified_from,omitempty"`
}

// origin names the input file that the code changed into an output file.
type origin struct {
	ID      string `json:"id"`
	Storage string `json:"storage_session_id"`
}

// The most that an execution leaves.
const (
	maxOutputs  = 100
	maxLooked   = 5000      // most names that are examined
	maxTogether = 200 << 20 // bytes of all files
	maxNotes    = 50        // about files that are not returned
	aRecord     = 300       // bytes of a file's record in memory, without its path
)

// note reports a file on stderr. Files without a report are counted.
func (r *run) note(format string, args ...any) {
	if len(r.notes) == maxNotes {
		r.unsaid++
		return
	}
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// ignored are folders of caches and packages, which are not results.
var ignored = []string{"__pycache__", "node_modules", ".cache", ".git"}

// look lists the regular files of the working folder, by their relative names.
func (r *run) look(ctx context.Context, sandbox string) (map[string]hutch.FileInfo, error) {
	root, err := r.h.svc.Stat(ctx, sandbox, ".")
	if err != nil {
		return nil, err
	}
	found := map[string]hutch.FileInfo{}
	err = r.h.svc.ListFiles(ctx, sandbox, hutch.ListRequest{Path: ".", Recursive: true, Depth: maxDepth, Limit: maxLooked}, func(f hutch.FileInfo) error {
		name, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(root.Path, "/")+"/")
		if !ok || f.Type != hutch.RegularFile || slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return slices.Contains(ignored, part) }) {
			return nil
		}
		if !compat.Take(ctx, 2*len(f.Path)+aRecord) {
			return compat.ErrNoRoom
		}
		found[name] = f
		return nil
	})
	if err != nil && hutch.KindOf(err) == hutch.Exhausted {
		r.note("there are more files than are looked at, which is %d: the rest is not returned", maxLooked)
		err = nil
	}
	return found, err
}

// collect puts the new and changed files into the user's store.
func (r *run) collect(ctx context.Context, sandbox string, before map[string]hutch.FileInfo) error {
	after, err := r.look(ctx, sandbox)
	if err != nil {
		return err
	}
	var fresh []hutch.FileInfo
	var names []string
	for name, f := range after {
		was, there := before[name]
		switch {
		case there && was.Size == f.Size && was.Modified.Equal(f.Modified):
			r.inherit(name)
		case checkName(name) != nil:
			r.note("the file %.200q is not returned: its name cannot be used", name)
		default:
			names = append(names, name)
		}
	}
	if err := r.deleted(ctx, sandbox, before, after); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		fresh = append(fresh, after[name])
	}
	return r.keep(ctx, sandbox, names, fresh)
}

// inherit adds an input file that did not change. Older releases, which name files by session_id, do not get unchanged
// files.
func (r *run) inherit(name string) {
	for _, in := range r.Files {
		if in.Name == name && in.Storage != "" {
			r.files = append(r.files, output{ID: in.ID, Name: name, Path: name, Storage: in.Storage, Inherited: true})
		}
	}
}

// deleted finds the input files that the code deleted. A list of files can be incomplete, so each missing file is
// checked.
func (r *run) deleted(ctx context.Context, sandbox string, before, after map[string]hutch.FileInfo) error {
	for _, in := range r.Files {
		_, was := before[in.Name]
		if _, is := after[in.Name]; !was || is || slices.Contains(r.gone, in.Name) {
			continue
		}
		_, err := r.h.svc.Stat(ctx, sandbox, in.Name)
		if hutch.KindOf(err) == hutch.NotFound {
			r.gone = append(r.gone, in.Name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) keep(ctx context.Context, sandbox string, names []string, files []hutch.FileInfo) error {
	if len(names) == 0 {
		return nil
	}
	st := storeOf(r.who, owned{Kind: kindUser})
	if err := r.h.open(ctx, st); err != nil {
		return err
	}
	var together int64
	for i, f := range files {
		reason := ""
		switch {
		case i >= maxOutputs:
			reason = fmt.Sprintf("there are %d already", maxOutputs)
		case f.Size > maxFile || together+f.Size > maxTogether:
			reason = fmt.Sprintf("a file can have %d MiB, and all together %d", maxFile>>20, maxTogether>>20)
		}
		if reason != "" {
			r.note("the file %s is not returned: %s", names[i], reason)
			continue
		}
		err := r.h.copy(ctx, sandbox, names[i], func(content io.Reader) error {
			return r.h.put(ctx, st, r.session, writable, names[i], content)
		})
		if err != nil {
			r.note("the file %s is not returned: %s", names[i], hutch.AsError(err).Message)
			continue
		}
		together += f.Size
		out := output{ID: fileID(r.session, names[i]), Name: names[i], Path: names[i], Storage: r.session}
		for _, in := range r.Files {
			if in.Name == names[i] {
				out.From = &origin{in.ID, in.session()}
			}
		}
		r.files = append(r.files, out)
	}
	return nil
}
