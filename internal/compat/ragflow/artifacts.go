package ragflow

import (
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"hutch"
	"hutch/internal/compat"
)

// artifact is a file that the code left.
type artifact struct {
	Name    string `json:"name"`
	Type    string `json:"mime_type"`
	Size    int    `json:"size"`
	Content string `json:"content_b64"`
}

// types are the media types of artifacts, by the ends of names. Other files are not artifacts.
var types = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml", ".pdf": "application/pdf",
	".csv": "text/csv", ".json": "application/json", ".html": "text/html",
}

// The limits of one run's result. RAGFlow's executor has the first two as well.
const (
	maxArtifacts = 10
	maxArtifact  = 10 << 20 // bytes
	maxTogether  = 20 << 20 // bytes
)

// isArtifact reports whether a file is returned.
func isArtifact(f hutch.FileInfo) bool {
	odd := func(r rune) bool { return unicode.IsControl(r) || r == '/' || r == '\\' }
	return f.Type == hutch.RegularFile && f.Size > 0 && types[strings.ToLower(path.Ext(f.Name))] != "" &&
		!strings.HasPrefix(f.Name, ".") && !strings.Contains(f.Name, "..") && utf8.ValidString(f.Name) && !strings.ContainsFunc(f.Name, odd)
}

// collect adds the files in the working folder, and in its folder "artifacts". It names files that are left out on
// stderr.
func (h *Handler) collect(ctx context.Context, sandbox string, r *result) error {
	found, err := h.find(ctx, sandbox)
	if err != nil {
		return err
	}
	together, out := 0, []string{}
	defer func() { r.Stderr += notes(out) }()
	for _, f := range found {
		if reason := leftOut(f, len(r.Artifacts), together); reason != "" {
			out = append(out, fmt.Sprintf("the artifact %s is left out: %s", f.Name, reason))
			continue
		}
		content, err := h.content(ctx, sandbox, f.Path)
		if err != nil {
			return err
		}
		if len(content) == 0 {
			continue // the code is still running, and has changed it
		}
		together += len(content)
		r.Artifacts = append(r.Artifacts, artifact{f.Name, types[strings.ToLower(path.Ext(f.Name))], len(content), base64.StdEncoding.EncodeToString(content)})
	}
	return nil
}

// maxNotes is how many files that are left out have a line on stderr.
const maxNotes = 50

// notes returns the report on stderr about files that are left out.
func notes(out []string) string {
	if more := len(out) - maxNotes; more > 0 {
		out = append(out[:maxNotes], fmt.Sprintf("and %d more are left out", more))
	}
	if len(out) == 0 {
		return ""
	}
	return "\n" + strings.Join(out, "\n")
}

// leftOut returns why a file is left out; empty if the file is returned.
func leftOut(f hutch.FileInfo, before, together int) string {
	switch {
	case before == maxArtifacts:
		return fmt.Sprintf("there are %d already", maxArtifacts)
	case f.Size > maxArtifact:
		return fmt.Sprintf("it has more than %d MiB", maxArtifact>>20)
	case int64(together)+f.Size > maxTogether:
		return fmt.Sprintf("together they have more than %d MiB", maxTogether>>20)
	}
	return ""
}

// maxListed is how many names of a folder are examined.
const maxListed = 1000

// find returns the artifacts of both folders, sorted. A file of the working folder replaces a file with the same name
// in the other folder.
func (h *Handler) find(ctx context.Context, sandbox string) ([]hutch.FileInfo, error) {
	var found []hutch.FileInfo
	names := map[string]bool{}
	for _, dir := range []string{".", "artifacts"} {
		err := h.svc.ListFiles(ctx, sandbox, hutch.ListRequest{Path: dir, Limit: maxListed}, func(f hutch.FileInfo) error {
			if isArtifact(f) && !names[f.Name] {
				names[f.Name] = true
				found = append(found, f)
			}
			return nil
		})
		// The code can have removed the folder, or filled it with too many names.
		if kind := hutch.KindOf(err); err != nil && kind != hutch.NotFound && kind != hutch.Exhausted && kind != hutch.Conflict && kind != hutch.Invalid {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b hutch.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// content reads a file. A file that was removed meanwhile is empty.
func (h *Handler) content(ctx context.Context, sandbox, file string) ([]byte, error) {
	b := compat.NewBuffer(ctx, maxArtifact)
	_, err := h.svc.ReadFile(ctx, sandbox, hutch.ReadRequest{Path: file, Length: maxArtifact}, b)
	if kind := hutch.KindOf(err); err != nil && kind != hutch.NotFound && kind != hutch.Conflict && kind != hutch.Invalid && kind != hutch.Denied {
		return nil, err
	}
	return b.Bytes(), nil
}
