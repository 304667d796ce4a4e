package piston

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hutch"
)

const (
	runTime     = 3000  // ms, as Piston's default
	compileTime = 10000 // ms
	maxFiles    = 100
	maxArgs     = 1000
	minMemory   = 64 // MiB, for the sandbox and the program in it
)

// compiled are the languages with a compile stage.
var compiled = []string{"c", "c++", "go", "java", "rust"}

// file is one of the files of a program.
type file struct {
	Name     string  `json:"name"`
	Content  *string `json:"content"`
	Encoding string  `json:"encoding"`
}

func (f file) isText() bool { return f.Encoding == "" || f.Encoding == "utf8" }

// bytes decodes the content.
func (f file) bytes() ([]byte, error) {
	var b []byte
	var err error
	switch {
	case f.isText():
		return []byte(*f.Content), nil
	case f.Encoding == "base64":
		b, err = base64.StdEncoding.DecodeString(*f.Content)
	case f.Encoding == "hex":
		b, err = hex.DecodeString(*f.Content)
	default:
		return nil, hutch.Errorf(hutch.Invalid, "files[].encoding is %.20q: use utf8, base64 or hex", f.Encoding)
	}
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the content of the file %.60q is not %s", f.Name, f.Encoding)
	}
	return b, nil
}

// job is the body of execute.
type job struct {
	Language      string   `json:"language"`
	Version       string   `json:"version"`
	Files         []file   `json:"files"`
	Stdin         string   `json:"stdin"`
	Args          []string `json:"args"`
	RunTimeout    float64  `json:"run_timeout"`
	CompileTime   float64  `json:"compile_timeout"`
	RunMemory     float64  `json:"run_memory_limit"`
	CompileMemory float64  `json:"compile_memory_limit"`
	RunCPU        float64  `json:"run_cpu_time"`
	CompileCPU    float64  `json:"compile_cpu_time"`
}

// check refuses a job that no server could carry out, or that would take longer than a time.
func (j job) check(longest time.Duration) error {
	invalid := func(format string, args ...any) error { return hutch.Errorf(hutch.Invalid, format, args...) }
	switch {
	case j.Language == "":
		return invalid("language is required as a string")
	case j.Version == "":
		return invalid("version is required as a string")
	case len(j.Files) == 0:
		return invalid("files is required as an array")
	case len(j.Files) > maxFiles || len(j.Args) > maxArgs:
		return invalid("there are more than %d files or %d args", maxFiles, maxArgs)
	}
	for i, f := range j.Files {
		if err := f.check(i); err != nil {
			return err
		}
	}
	if j.main() < 0 {
		return invalid("files must include at least one utf8 encoded file")
	}
	if err := checkTimes("run", j.RunTimeout, runTime, j.RunCPU, longest); err != nil {
		return err
	}
	return checkTimes("compile", j.CompileTime, compileTime, j.CompileCPU, longest)
}

func (f file) check(i int) error {
	if f.Content == nil {
		return hutch.Errorf(hutch.Invalid, "files[%d].content is required as a string", i)
	}
	if f.Name != "" && (!filepath.IsLocal(f.Name) || filepath.Clean(f.Name) == "." || len(f.Name) > hutch.MaxPath || strings.Contains(f.Name, "\x00")) {
		return hutch.Errorf(hutch.Invalid, "files[%d].name must be a path below the working folder", i)
	}
	_, err := f.bytes()
	return err
}

// checkTimes checks the limits of a stage, in ms. A program cannot use more CPU time than elapsed time, because its
// sandbox has one core: so a CPU limit is never exceeded if it is not below the elapsed limit.
func checkTimes(stage string, limit, usual, cpu float64, longest time.Duration) error {
	most := float64(longest / time.Millisecond)
	switch {
	case limit < 0 || cpu < 0:
		return hutch.Errorf(hutch.Invalid, "%s_timeout and %[1]s_cpu_time must be non-negative", stage)
	case limit > most:
		return hutch.Errorf(hutch.Invalid, "%s_timeout cannot exceed the configured limit of %.0f", stage, most)
	case cpu > 0 && cpu < orUsual(limit, usual):
		return hutch.Errorf(hutch.Unsupported, "%s_cpu_time: this server limits the time of a clock; use %[1]s_timeout, which is %.0f", stage, orUsual(limit, usual))
	}
	return nil
}

// main returns the index of the file that is run: the first text file.
func (j job) main() int { return slices.IndexFunc(j.Files, file.isText) }

// name returns the path of a file that is not run, in the working folder.
func (j job) name(i int) string {
	if j.Files[i].Name == "" {
		return fmt.Sprintf("file%d.code", i)
	}
	return filepath.Clean(j.Files[i].Name)
}

// input returns the standard input. As with Piston, it always ends with a line feed.
func (j job) input() string {
	if strings.HasSuffix(j.Stdin, "\n") {
		return j.Stdin
	}
	return j.Stdin + "\n"
}

// limit returns the time limit of both stages together.
func (j job) limit(language string) hutch.Seconds {
	ms := orUsual(j.RunTimeout, runTime)
	if slices.Contains(compiled, language) {
		ms += orUsual(j.CompileTime, compileTime)
	}
	return hutch.Seconds(max(ms, 1) / 1000)
}

// memory returns the sandbox's memory in MiB; 0 is the server's default.
func (j job) memory() int {
	bytes := max(j.RunMemory, j.CompileMemory)
	if bytes <= 0 {
		return 0
	}
	return max(int(math.Min(math.Ceil(bytes/(1<<20)), 1<<20)), minMemory)
}

func orUsual(given, usual float64) float64 {
	if given > 0 {
		return given
	}
	return usual
}
