// Package kernel knows the interpreters of code contexts: the programs that run inside a sandbox and keep state between
// runs, their input for a run, and the meaning of their messages.
//
// The agent knows no languages. It starts a kernel from the given source, passes text to it and messages from it, and
// interprets only the parts of them that package agent describes in its interpreter.go. A kernel is in one process with
// user code, so its messages are as hostile as any output.
package kernel

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"regexp"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/runner"
	"hutch/internal/text"
	"hutch/internal/wire"
)

//go:embed kernel.py
var kernelPython string

//go:embed charts.py
var chartsPython string

//go:embed notebook.py
var notebookPython string

var pythonSource = strings.NewReplacer("# charts.py comes here\n", chartsPython, "# notebook.py comes here\n", notebookPython).Replace(kernelPython)

//go:embed kernel.mjs
var javascriptSource string

//go:embed kernel.sh
var bashSource string

// Kernel is the interpreter of a language.
type Kernel struct {
	Language string
	aliases  []string
	argv     []string
	source   string
	name     string // name of the file with the source
	// input turns a run into the interpreter's input.
	input func(Code) (input, source string)
	// fixed are patterns of the variables that cannot be changed any more in a spare interpreter; nil for a language
	// without spare interpreters.
	fixed []string
	// convert turns code into the interpreter's form.
	convert func(code string) (string, error)
}

// Code is code to run in a context, with its settings.
type Code struct {
	ID    string
	Text  string
	Env   map[string]string
	Dir   string // folder to change to first; the context stays there
	Stdin bool
	fault *hutch.CodeError
}

var kernels = []Kernel{
	{
		Language: "bash", aliases: []string{"sh", "shell"}, name: "kernel.sh", source: bashSource,
		// Bash reports on stderr that it has no terminal, so its stderr is /dev/null at first, and descriptor 9
		// keeps the real one. Without --norc, bash reads ~/.bashrc if its input is a socket, as for rsh.
		argv:  []string{"bash", "--norc", "-c", `exec bash --noediting --noprofile --rcfile "$1" -i +m 9>&2 2>/dev/null`, "bash", wire.SourceArg},
		input: shellInput,
	},
	{
		Language: "javascript", aliases: []string{"js", "node", "nodejs"}, name: "kernel.mjs", source: javascriptSource,
		argv: nodeArgv, input: jsonInput, fixed: nodeFixed,
	},
	{
		Language: "python", aliases: []string{"py", "python3"}, name: "kernel.py", source: pythonSource,
		argv: []string{"python3", wire.SourceArg}, input: jsonInput,
		fixed: []string{"PATH", "HOME", "LANG", "LC_*", "LD_*", "TZ", "PYTHON*", "HUTCH_IPYTHON", "IPYTHON*", "MPL*", "*_NUM_THREADS"},
	},
	{
		Language: "typescript", aliases: []string{"ts"}, name: "kernel.mjs", source: javascriptSource,
		argv: nodeArgv, input: jsonInput, fixed: nodeFixed, convert: runner.StripTypes,
	},
}

// Node cannot move a descriptor to a number where user code does not look, but bash can.
var nodeArgv = []string{
	"bash", "--norc", "-c", `command -v node >/dev/null || { echo "hutch: this sandbox has no program node: use an image that has it" >&2; exit 127; }
exec node --enable-source-maps "$1" 200<&0 201>&1 202>&2 </dev/null`, "bash", wire.SourceArg,
}

var nodeFixed = []string{"PATH", "HOME", "LANG", "LC_*", "LD_*", "TZ", "NODE_*", "UV_*"}

// Speaks reports whether there are code contexts in a language.
func Speaks(language string) bool {
	return slices.ContainsFunc(kernels, func(k Kernel) bool { return k.Language == language })
}

// Lookup finds a kernel by the name of its language or an alias; "" is python.
func Lookup(language string) (Kernel, error) {
	language = strings.ToLower(language)
	if language == "" {
		language = "python"
	}
	var known []string
	for _, k := range kernels {
		if k.Language == language || slices.Contains(k.aliases, language) {
			return k, nil
		}
		known = append(known, k.Language)
	}
	return Kernel{}, hutch.Errorf(hutch.Invalid, "there are no code contexts in %.60q: use one of %s, or run a program in any language with exec", language, strings.Join(known, ", ")).
		With("field", "language").With("languages", known)
}

// Context returns the agent's instructions for a context.
func (k Kernel) Context() wire.Context {
	c := wire.Context{Language: k.Language, Argv: slices.Clone(k.argv), Source: k.source, SourceName: k.name}
	if k.fixed != nil {
		c.Fixed, c.Become = k.fixed, `{"become":`+wire.EnvArg+"}\n"
	}
	return c
}

// Spare returns the agent's instructions for an interpreter for a future context, with these modules imported.
func (k Kernel) Spare(modules []string) (wire.Context, error) {
	if k.fixed == nil {
		return wire.Context{}, hutch.Errorf(hutch.Unsupported, "no interpreters of %s are kept ready: only of python and javascript", k.Language)
	}
	for _, name := range modules {
		if !module.MatchString(name) {
			return wire.Context{}, hutch.Errorf(hutch.Invalid, "%.80q is not the name of a module", name)
		}
	}
	text, err := json.Marshal(map[string][]string{"prepare": append([]string{}, modules...)})
	c := k.Context()
	c.Prepare = string(text) + "\n"
	return c, err
}

// Spares parses texts such as "python" and "python=pandas,numpy", and returns the agent's instructions for those
// interpreters.
func Spares(texts []string) ([]wire.Context, error) {
	var all []wire.Context
	for _, text := range texts {
		language, list, some := strings.Cut(text, "=")
		k, err := Lookup(language)
		if err != nil {
			return nil, err
		}
		var modules []string
		if some {
			modules = strings.Split(list, ",")
		}
		c, err := k.Spare(modules)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// module matches names of modules.
var module = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// Run returns the agent's instructions for a run.
func (k Kernel) Run(c Code) (wire.Run, error) {
	if k.convert != nil {
		text, err := k.convert(c.Text)
		switch {
		case hutch.KindOf(err) == hutch.Invalid:
			message := hutch.AsError(err).Message
			c.fault = &hutch.CodeError{Name: "SyntaxError", Message: message, Traceback: "SyntaxError: " + message}
		case err != nil:
			return wire.Run{}, err
		}
		c.Text = text
	}
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	input, source := k.input(c)
	return wire.Run{ID: c.ID, Input: input, Source: source, Stdin: c.Stdin}, nil
}

// jsonInput returns a line of JSON, as python and javascript take it.
func jsonInput(c Code) (input, source string) {
	b, err := json.Marshal(struct {
		ID    string            `json:"id"`
		Code  string            `json:"code"`
		Env   map[string]string `json:"env"`
		Dir   string            `json:"dir,omitempty"`
		Fault *hutch.CodeError  `json:"error,omitempty"`
	}{c.ID, c.Text, c.Env, c.Dir, c.fault})
	if err != nil {
		panic(err) // texts can always be encoded
	}
	line := strings.TrimSuffix(string(b), "}")
	if c.Stdin {
		line += `,"stdin":"` + wire.StdinArg + `"`
	}
	return line + "}\n", ""
}

// Bash receives code longer than longCode in a file, because it reads its input byte by byte.
const longCode = 4 << 10

// shellInput returns two lines of bash: the code, and the report of its end.
func shellInput(c Code) (input, source string) {
	var b strings.Builder
	text, stdin := c.Text, "/dev/null"
	if c.Stdin {
		text = `builtin printf '\n` + c.ID + `<\n' >&200; ` + text
		stdin = wire.StdinArg
	}
	code := hutch.CommandLine(text)
	if len(text) > longCode {
		source = text
		b.WriteString("mapfile -d '' -t __hutch_code <" + wire.SourceArg + "; ")
		code = `"${__hutch_code[0]}"`
	}
	if len(c.Env) > 0 {
		b.WriteString("__hutch_lend")
		for _, name := range slices.Sorted(maps.Keys(c.Env)) {
			b.WriteString(" " + hutch.CommandLine(name+"="+c.Env[name]))
		}
		b.WriteString("; ")
	}
	if c.Dir != "" {
		b.WriteString("builtin cd -- " + hutch.CommandLine(c.Dir) + " && ")
	}
	b.WriteString("{ __hutch_status; ")
	fmt.Fprintf(&b, "builtin eval %s <%s; }\n__hutch_end %s\n", code, stdin, c.ID)
	return b.String(), source
}

// Bounds of a message.
const (
	maxForms = 64
	maxName  = 200
	maxText  = 256 << 10
	maxAsked = 16 << 10
)

// Parse reads a message of a kernel.
func Parse(message []byte) (hutch.RunEvent, error) {
	var m struct {
		Result *result             `json:"result"`
		Error  *hutch.CodeError    `json:"error"`
		Input  *hutch.InputRequest `json:"input"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return hutch.RunEvent{}, fmt.Errorf("message of a kernel: %w", err)
	}
	switch {
	case m.Input != nil && m.Error == nil && m.Result == nil:
		m.Input.Prompt = text.Head(m.Input.Prompt, maxAsked, "…")
		return hutch.RunEvent{Input: m.Input}, nil
	case m.Error != nil && m.Result == nil && m.Input == nil:
		e := m.Error
		e.Name, e.Message, e.Traceback = text.Head(e.Name, maxName, "…"), text.Head(e.Message, maxText, "…"), text.Head(e.Traceback, maxText, "…")
		return hutch.RunEvent{Error: e}, nil
	case m.Result != nil && m.Error == nil && m.Input == nil:
		return hutch.RunEvent{Result: &hutch.CodeResult{Main: m.Result.Main, Data: m.Result.Data}}, checkForms(m.Result.Data)
	}
	return hutch.RunEvent{}, fmt.Errorf("message of a kernel is not one of a result, an error and a wish for input")
}

// result is a [hutch.CodeResult], as a hostile interpreter sends it.
type result struct {
	Main bool  `json:"main"`
	Data forms `json:"data"`
}

type forms map[string]json.RawMessage

// UnmarshalJSON stops when there are too many forms: decoding a million of them, from a message of a few MiB, would
// take some hundred MiB before they could be counted.
func (f *forms) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	switch t, err := dec.Token(); {
	case err != nil || t == nil: // null
		return err
	case t != json.Delim('{'):
		return errors.New("forms that are not an object")
	}
	*f = forms{}
	for n := 1; dec.More(); n++ {
		if n > maxForms {
			return fmt.Errorf("a result in more than %d forms", maxForms)
		}
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var form json.RawMessage
		if err := dec.Decode(&form); err != nil {
			return err
		}
		(*f)[name.(string)] = form // the decoder has checked the names of an object
	}
	return nil
}

func checkForms(data map[string]json.RawMessage) error {
	if len(data) == 0 {
		return errors.New("a result without forms")
	}
	for name, form := range data {
		if _, _, err := mime.ParseMediaType(name); err != nil || len(name) > maxName {
			return fmt.Errorf("a result of type %.60q", name)
		}
		if text := form[0] == '"'; !text && (name == "text/plain" || strings.HasPrefix(name, "image/")) {
			return fmt.Errorf("a result of type %s that is not text", name)
		}
	}
	return nil
}
