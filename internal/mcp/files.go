package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/text"
)

// addFileTools registers the tools for files.
func (s *server) addFileTools() {
	add(s, &sdk.Tool{
		Name: "readFile", Title: "Read a file",
		Description: "Read a text file of a sandbox with numbered lines, or look at an image (PNG, JPEG, GIF, WebP). " +
			"Of a long file the first part comes, and how to read on. A binary file comes as base64.",
		Annotations: hints{readOnly: true, idempotent: true}.annotations(),
		InputSchema: schema[readFileArgs](nil),
	}, s.readFile)
	add(s, &sdk.Tool{
		Name: "writeFile", Title: "Write a file",
		Description: "Write a whole text file in a sandbox, with the folders above it. What was there is replaced. To change a part, use editFile.",
		Annotations: hints{destructive: true, idempotent: true}.annotations(),
		InputSchema: schema[writeFileArgs](nil),
	}, s.writeFile)
	add(s, &sdk.Tool{
		Name: "editFile", Title: "Edit a file",
		Description: "Replace text in a file of a sandbox. oldText must be in it exactly once, character by character and without line numbers: give enough of the lines around it.",
		Annotations: hints{destructive: true}.annotations(),
		InputSchema: schema[editFileArgs](nil),
	}, s.editFile)
	add(s, &sdk.Tool{
		Name: "listFiles", Title: "List files",
		Description: "List what is in a folder of a sandbox, with sizes; folders end in /.",
		Annotations: hints{readOnly: true, idempotent: true}.annotations(),
		InputSchema: schema[listFilesArgs](nil),
	}, s.listFiles)
}

type readFileArgs struct {
	SandboxID string `json:"sandboxId"`
	Path      string `json:"path" jsonschema:"absolute, or relative to /workspace"`
	FirstLine int    `json:"firstLine,omitempty" jsonschema:"from 1"`
	LastLine  int    `json:"lastLine,omitempty"`
}

type writeFileArgs struct {
	SandboxID string `json:"sandboxId"`
	Path      string `json:"path" jsonschema:"absolute, or relative to /workspace"`
	Content   string `json:"content"`
}

type editFileArgs struct {
	SandboxID  string `json:"sandboxId"`
	Path       string `json:"path" jsonschema:"absolute, or relative to /workspace"`
	OldText    string `json:"oldText"`
	NewText    string `json:"newText"`
	ReplaceAll bool   `json:"replaceAll,omitempty" jsonschema:"every occurrence, instead of exactly one"`
}

type listFilesArgs struct {
	SandboxID string `json:"sandboxId"`
	Path      string `json:"path,omitempty" jsonschema:"default /workspace"`
	Recursive bool   `json:"recursive,omitempty"`
	Hidden    bool   `json:"hidden,omitempty" jsonschema:"names that begin with a dot, too"`
	Glob      string `json:"glob,omitempty" jsonschema:"such as *.go or src/**/*.ts; looks into folders"`
}

// inFile checks the arguments that all file tools need, and records the sandbox.
func (c *call) inFile(sandbox, path string) error {
	c.sandbox = sandbox
	if err := need("sandboxId", sandbox, "the sandbox that the file is in; exec makes one"); err != nil {
		return err
	}
	return need("path", path, "the file's path")
}

// ofFile marks an error as being about the file and not about the sandbox.
func ofFile(err error, path string) error {
	e, ok := errors.AsType[*hutch.Error](err)
	if !ok || e.Kind != hutch.NotFound && e.Kind != hutch.Conflict {
		return err
	}
	if about, _ := e.About(); about == hutch.AboutSandbox {
		return err
	}
	return e.Naming(hutch.AboutFile, path)
}

const maxImage = 4 << 20

// imageTypes are the types of image that models can read.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func (s *server) readFile(ctx context.Context, c *call, in readFileArgs) (reply, error) {
	if err := c.inFile(in.SandboxID, in.Path); err != nil {
		return reply{}, err
	}
	var b bytes.Buffer
	first := max(in.FirstLine, 1)
	info, err := s.svc.ReadFile(ctx, in.SandboxID, hutch.ReadRequest{
		Path: in.Path, FirstLine: first, LastLine: in.LastLine, Length: maxShown + 1,
	}, &b)
	if err != nil {
		return reply{}, ofFile(err, in.Path)
	}
	if kind := http.DetectContentType(b.Bytes()); first == 1 && slices.Contains(imageTypes, kind) {
		return s.readImage(ctx, c, in, info, kind)
	}
	text := b.Bytes()
	if len(text) > maxShown {
		text = wholeRunes(text)
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return binary(text, info), nil
	}
	shown := fitting(text)
	text, whole := text[:shown], shown == len(text)
	return reply{text: number(text, first) + footer(text, first, whole, info)}, nil
}

// maxBase64 is how many bytes of a binary file are shown: a quarter less than of text, because base64 is longer.
const maxBase64 = maxShown / 4 * 3

// binary shows the beginning of a binary file as base64.
func binary(data []byte, info hutch.FileInfo) reply {
	data = data[:min(len(data), maxBase64)]
	text := fmt.Sprintf("%s has %d bytes and is not UTF-8 text", quoted(info.Path), info.Size)
	if int64(len(data)) < info.Size {
		text += fmt.Sprintf("; these are %d of them. Look into it with exec, such as file or xxd", len(data))
	}
	return reply{text: text + ". In base64:\n" + base64.StdEncoding.EncodeToString(data), data: binaryFile{"base64", data, info.Size}}
}

// binaryFile is the structured result for a binary file.
type binaryFile struct {
	Encoding string `json:"encoding"`
	Content  []byte `json:"content"`
	Size     int64  `json:"size"`
}

func (s *server) readImage(ctx context.Context, c *call, in readFileArgs, info hutch.FileInfo, kind string) (reply, error) {
	if info.Size > maxImage {
		return reply{text: fmt.Sprintf("%s is an image of %d bytes, over the limit of %d: make a smaller copy with exec", quoted(info.Path), info.Size, maxImage)}, nil
	}
	var b bytes.Buffer
	if _, err := s.svc.ReadFile(ctx, in.SandboxID, hutch.ReadRequest{Path: in.Path, Length: maxImage}, &b); err != nil {
		return reply{}, ofFile(err, in.Path)
	}
	c.images = append(c.images, &sdk.ImageContent{Data: b.Bytes(), MIMEType: kind})
	return reply{text: fmt.Sprintf("%s: %s, %d bytes", quoted(info.Path), kind, b.Len())}, nil
}

// fitting returns how much of a text can be shown with a number before each line, and only whole lines if there are
// several.
func fitting(text []byte) (n int) {
	room := maxShown
	for line := range bytes.Lines(text) {
		room -= numberWidth + len(line)
		if room < 0 && n == 0 {
			return len(wholeRunes(line[:min(len(line), maxShown-numberWidth)]))
		}
		if room < 0 {
			return n
		}
		n += len(line)
	}
	return n
}

// numberWidth is the length of the number before a line: six digits and a tab.
const numberWidth = 7

// number puts a line number before each line; first is the number of the first line.
func number(text []byte, first int) string {
	var b strings.Builder
	for line := range bytes.Lines(text) {
		fmt.Fprintf(&b, "%6d\t%s", first, line)
		first++
	}
	return b.String()
}

// footer says how to continue reading.
func footer(text []byte, first int, whole bool, info hutch.FileInfo) string {
	lines := bytes.Count(text, []byte("\n"))
	switch {
	case len(text) == 0 && first > 1:
		return fmt.Sprintf("[%s has no line %d]", quoted(info.Path), first)
	case len(text) == 0:
		return fmt.Sprintf("[%s is empty]", quoted(info.Path))
	case whole && text[len(text)-1] != '\n':
		return "\n"
	case whole:
		return ""
	case lines == 0:
		return fmt.Sprintf("\n[line %d is longer than %d bytes, of %d in all: read parts of it with exec, such as tail -c +%d | head -c 10000]", first, len(text), info.Size, len(text)+1)
	}
	return fmt.Sprintf("[lines %d to %d, of %d bytes in all: continue with firstLine %d, or search with exec and grep -n]", first, first+lines-1, info.Size, first+lines)
}

func quoted(path string) string { return printable(path) }

func (s *server) writeFile(ctx context.Context, c *call, in writeFileArgs) (reply, error) {
	if err := c.inFile(in.SandboxID, in.Path); err != nil {
		return reply{}, err
	}
	info, err := s.svc.WriteFile(ctx, in.SandboxID, hutch.WriteRequest{Path: in.Path, Parents: true}, strings.NewReader(in.Content))
	if err != nil {
		return reply{}, ofFile(err, in.Path)
	}
	return reply{text: fmt.Sprintf("wrote %d bytes to %s", info.Size, quoted(info.Path))}, nil
}

func (s *server) editFile(ctx context.Context, c *call, in editFileArgs) (reply, error) {
	if err := c.inFile(in.SandboxID, in.Path); err != nil {
		return reply{}, err
	}
	edit, err := s.svc.EditFile(ctx, in.SandboxID, hutch.EditRequest{Path: in.Path, Old: in.OldText, New: in.NewText, All: in.ReplaceAll})
	if err != nil {
		return reply{}, ofFile(err, in.Path)
	}
	return reply{text: fmt.Sprintf("replaced %d × in %s, first in line %d", edit.Replacements, quoted(edit.File.Path), edit.Line)}, nil
}

const maxListedFiles = 500

func (s *server) listFiles(ctx context.Context, c *call, in listFilesArgs) (reply, error) {
	if in.Path == "" {
		in.Path = "/workspace"
	}
	if err := c.inFile(in.SandboxID, in.Path); err != nil {
		return reply{}, err
	}
	var b strings.Builder
	n := 0
	err := s.svc.ListFiles(ctx, in.SandboxID, hutch.ListRequest{
		Path: in.Path, Recursive: in.Recursive, Hidden: in.Hidden, Glob: in.Glob, Limit: maxListedFiles,
	}, func(f hutch.FileInfo) error {
		n++
		if b.Len() < maxShown {
			b.WriteString(listed(f) + "\n")
		}
		return nil
	})
	switch {
	case errors.Is(err, hutch.Exhausted) || b.Len() >= maxShown:
		b.WriteString("[there are more: list a folder below, or give a glob]")
	case err != nil:
		return reply{}, ofFile(err, in.Path)
	case n == 0:
		b.WriteString("[nothing]")
	}
	return reply{text: b.String()}, nil
}

// printable returns a name without control characters such as line breaks.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if text.Steers(r) {
			return '\uFFFD'
		}
		return r
	}, name)
}

// listed formats one file of a list.
func listed(f hutch.FileInfo) string {
	path := printable(f.Path)
	switch f.Type {
	case hutch.Directory:
		return path + "/"
	case hutch.Symlink:
		return path + " -> " + printable(f.Target)
	case hutch.RegularFile:
		return fmt.Sprintf("%s  %d", path, f.Size)
	}
	return path + " (a pipe, socket or device)"
}
