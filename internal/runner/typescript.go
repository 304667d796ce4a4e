package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
	"golang.org/x/sys/unix"

	"hutch"
)

// A source can keep esbuild's parser busy for hours ("x<y<x<y<…"), or make its stack grow until the program dies
// ("(((("), and a parser cannot be stopped. So types are stripped in a separate process: this program, started under a
// special name.
const (
	stripperName   = "hutch-strip-types"
	stripperTime   = 3 * time.Second  // CPU time
	stripperWait   = 30 * time.Second // elapsed time; on a busy machine it passes quickly, and that must not refuse a source
	stripperMemory = 2 << 30          // bytes of address space; a Go program reserves much more than it uses
	stripperStack  = 256 << 20
	// maxStripped bounds the answer: the indentation of deeply nested code grows with the square of its depth.
	maxStripped = 4 * hutch.MaxCommand
)

func init() {
	if filepath.Base(os.Args[0]) == stripperName {
		os.Exit(stripper(os.Stdin, os.Stdout))
	}
}

// stripped is the answer of the stripper: code, or an error with its position.
type stripped struct {
	Code   string `json:"code,omitempty"`
	Module bool   `json:"module,omitempty"`
	Error  string `json:"error,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0 when not known
	Column int    `json:"column,omitempty"` // from 1, in characters
}

// stripTypes turns TypeScript into JavaScript that Node can run.
func stripTypes(source string) (string, string, error) {
	answer, err := parsed(source)
	switch {
	case err != nil:
		return "", "", err
	case answer.Module:
		return answer.Code, ".mjs", nil
	}
	return answer.Code, ".cjs", nil
}

// StripTypes turns a piece of TypeScript into JavaScript. Other pieces can use its declarations and imports. The error
// is of kind Invalid when it is not TypeScript.
func StripTypes(source string) (string, error) {
	answer, err := parsed(source, pieceArg)
	return answer.Code, err
}

// parsed runs the stripper, and explains its failures.
func parsed(source string, args ...string) (stripped, error) {
	answer, err := runStripper(source, args...)
	_, died := errors.AsType[*exec.ExitError](err)
	switch {
	case died:
		return answer, hutch.Errorf(hutch.Invalid, "the source is too complicated to be turned into JavaScript: nest less, or send it in parts").
			With("field", "command").Because(err)
	case err != nil:
		return answer, fmt.Errorf("strip types: %w", err)
	case answer.Error != "":
		return answer, hutch.Errorf(hutch.Invalid, "the TypeScript source has an error at line %d, column %d: %s", answer.Line, answer.Column, answer.Error).
			With("field", "command").With("line", answer.Line).With("column", answer.Column)
	}
	return answer, nil
}

func runStripper(source string, args ...string) (answer stripped, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stripperWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{stripperName}, args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.Output()
	if err != nil {
		return stripped{}, err
	}
	return answer, json.Unmarshal(out, &answer)
}

// stripper runs in the process that strips types, and returns its exit code.
func stripper(in io.Reader, out io.Writer) int {
	debug.SetMaxStack(stripperStack)
	seconds := uint64(stripperTime / time.Second)
	err := errors.Join(
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}))
	if limitsMemory {
		err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: stripperMemory, Max: stripperMemory}))
	}
	if err != nil {
		return 1
	}
	source, err := io.ReadAll(in)
	if err != nil {
		return 1
	}
	answer := strip(string(source), slices.Contains(os.Args, pieceArg))
	if len(answer.Code) > maxStripped || json.NewEncoder(out).Encode(answer) != nil {
		return 1
	}
	return 0
}

// pieceArg says that the source is a piece of a program that continues, so nothing in it counts as unused.
const pieceArg = "piece"

func strip(source string, piece bool) stripped {
	result := api.Build(api.BuildOptions{
		Stdin:  &api.StdinOptions{Contents: source, Sourcefile: "main.ts", Loader: api.LoaderTS},
		Format: api.FormatDefault, Target: api.ESNext, Platform: api.PlatformNode,
		Charset: api.CharsetUTF8, LogLevel: api.LogLevelSilent,
		Sourcemap: sourceMap(source), Metafile: true,
		TsconfigRaw: fmt.Sprintf(`{"compilerOptions": {"experimentalDecorators": true, "verbatimModuleSyntax": %t}}`, piece),
	})
	if len(result.Errors) > 0 {
		return failure(result.Errors[0])
	}
	if len(result.OutputFiles) != 1 {
		return stripped{Error: fmt.Sprintf("it became %d files", len(result.OutputFiles))}
	}
	return stripped{Code: string(result.OutputFiles[0].Contents), Module: isModule(result.Metafile)}
}

// sourceMap makes an error at run time name the line of the source. A map is larger than the code, so very large
// sources have none.
func sourceMap(source string) api.SourceMap {
	if len(source) > 256<<10 {
		return api.SourceMapNone
	}
	return api.SourceMapInline
}

func failure(m api.Message) stripped {
	s := stripped{Error: clip(m.Text, 500)}
	if at := m.Location; at != nil {
		before := at.LineText[:min(at.Column, len(at.LineText))]
		s.Line, s.Column = at.Line, utf8.RuneCountInString(before)+1
	}
	return s
}

// isModule reports whether the source is an ES module: it imports, exports or
// awaits at its top.
func isModule(metafile string) bool {
	var meta struct {
		Inputs map[string]struct {
			Format string `json:"format"`
		} `json:"inputs"`
	}
	if json.Unmarshal([]byte(metafile), &meta) != nil {
		return false
	}
	for _, in := range meta.Inputs {
		if in.Format == "esm" {
			return true
		}
	}
	return false
}
