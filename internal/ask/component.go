package ask

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"hutch"
	"hutch/internal/runner"
	"hutch/internal/yamlfault"
)

// Components are texts for prompts, each a Markdown file with front matter: agents are instructions to the model,
// commands are questions with a placeholder for the user's words. The files of Claude Code's folder .claude have this
// format. See docs/ask.md.
type Components struct {
	agents, commands map[string]component
}

// component is one file.
type component struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	Model       string `yaml:"model"`
	Language    string `yaml:"language"`
	MaxTokens   int    `yaml:"max-tokens"`

	body string
	err  error // why the component cannot be used
}

const (
	maxComponent  = 64 << 10 // bytes
	maxComponents = 200      // most components of each kind
)

// LoadComponents reads the folders agents and commands below dir. A folder that does not exist has no components.
func LoadComponents(dir string) (*Components, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the components cannot be read: %v", err)
	}
	defer root.Close()
	c := &Components{}
	if c.agents, err = loadKind(root.FS(), "agents"); err != nil {
		return nil, err
	}
	c.commands, err = loadKind(root.FS(), "commands")
	return c, err
}

// Check returns the error of the first invalid component. The valid components can be used.
func (c *Components) Check() error {
	for _, kind := range []map[string]component{c.agents, c.commands} {
		for _, name := range slices.Sorted(maps.Keys(kind)) {
			if err := kind[name].err; err != nil {
				return err
			}
		}
	}
	return nil
}

// FindComponents reads the components of several folders. Of two with the same name, the one in the earlier folder is
// used. Missing folders are skipped.
func FindComponents(dirs ...string) (*Components, error) {
	all := &Components{agents: map[string]component{}, commands: map[string]component{}}
	for _, dir := range slices.Backward(dirs) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		c, err := LoadComponents(dir)
		if err != nil {
			return nil, err
		}
		maps.Copy(all.agents, c.agents)
		maps.Copy(all.commands, c.commands)
	}
	return all, nil
}

// Fold replaces names of known components in the question by their text, for a server that does not have them. Unknown
// names stay. A component's model is not sent.
func (c *Components) Fold(q hutch.Question) (hutch.Question, error) {
	if m, ok := c.commands[q.Command]; ok && q.Command != "" {
		if m.err != nil {
			return q, m.err
		}
		q.Question, q.Command = m.expand(q.Question), ""
		q.Language, q.MaxTokens = cmp.Or(q.Language, m.Language), cmp.Or(q.MaxTokens, m.MaxTokens)
	}
	if a, ok := c.agents[q.Agent]; ok && q.Agent != "" {
		if a.err != nil {
			return q, a.err
		}
		q.Instructions, q.Agent = strings.TrimSpace(a.body+"\n\n"+q.Instructions), ""
		q.Language, q.MaxTokens = cmp.Or(q.Language, a.Language), cmp.Or(q.MaxTokens, a.MaxTokens)
	}
	return q, q.Check()
}

// loadKind reads the Markdown files of a folder and of its subfolders. A file a/b.md is named b, or a:b if there is
// also a b.md next to a.
func loadKind(fsys fs.FS, kind string) (map[string]component, error) {
	found := map[string]component{}
	err := fs.WalkDir(fsys, kind, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name == kind:
			return fs.SkipAll
		case err != nil:
			return err
		case d.IsDir() || path.Ext(name) != ".md":
			return nil
		case len(found) >= maxComponents:
			return hutch.Errorf(hutch.Invalid, "there are more than %d files in %s", maxComponents, kind)
		}
		c, err := readComponent(fsys, name)
		if err != nil {
			c.err = hutch.Errorf(hutch.Invalid, "the component %s cannot be used: %v", name, err)
		}
		id := strings.TrimSuffix(path.Base(name), ".md")
		if _, twice := found[id]; twice {
			id = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(name, kind+"/"), ".md"), "/", ":")
		}
		if kind == "agents" && c.Name != "" {
			id = c.Name // as in Claude Code
		}
		found[id] = c
		return nil
	})
	return found, err
}

func readComponent(fsys fs.FS, name string) (component, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return component{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxComponent {
		return component{}, hutch.Errorf(hutch.Invalid, "it is not a file of at most %d bytes", maxComponent)
	}
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return component{}, err
	}
	return parseComponent(b)
}

// parseComponent reads a Markdown file. Front matter between two lines of --- is optional. Keys for other programs,
// such as Claude Code's tools, are ignored.
func parseComponent(b []byte) (c component, err error) {
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	if rest, ok := bytes.CutPrefix(b, []byte("---\n")); ok {
		head, body, closed := bytes.Cut(rest, []byte("\n---\n"))
		if !closed {
			if head, closed = bytes.CutSuffix(rest, []byte("\n---")); !closed {
				return c, errors.New("its front matter does not end: put a line --- after it")
			}
		}
		if err := parseHead(head, &c); err != nil {
			return c, hutch.Errorf(hutch.Invalid, "its front matter cannot be read as YAML: %.500s", yamlfault.Words(err, map[string]string{"ask.component": "component"}))
		}
		b = body
	}
	c.body = strings.TrimSpace(string(b))
	return c, c.check()
}

// parseHead reads front matter. In Claude Code's files it is often not valid YAML, because of colons in a description
// or several brackets in a hint: then each line is parsed separately, and only known keys are used.
func parseHead(head []byte, c *component) error {
	err := yaml.Unmarshal(head, c)
	if err == nil {
		return nil
	}
	var ours []byte
	for line := range bytes.Lines(head) {
		key, _, isKey := bytes.Cut(line, []byte(":"))
		switch name := string(key); {
		case slices.Contains([]string{"name", "model", "language", "max-tokens"}, name):
			ours = append(ours, line...)
		case len(bytes.TrimSpace(line)) > 0 && !(isKey && plainKey.MatchString(name)):
			return err
		}
	}
	*c = component{}
	return yaml.Unmarshal(ours, c)
}

var plainKey = regexp.MustCompile(`^[a-zA-Z][a-zA-Z-]*$`)

func (c component) check() error {
	switch {
	case c.body == "":
		return errors.New("it has no text")
	case strings.Contains(c.body, "!`"):
		return errors.New("it runs a command of the shell with !`…`, which Hutch does not do on this machine: write what the command would print, or let the program find it")
	case c.MaxTokens < 0 || c.MaxTokens > hutch.MaxMaxTokens:
		return hutch.Errorf(hutch.Invalid, "max-tokens is %d: give 1 to %d", c.MaxTokens, hutch.MaxMaxTokens)
	case c.Language != "":
		_, err := runner.Lookup(c.Language)
		return err
	}
	return nil
}

// expand puts the user's words into a command: all of them for $ARGUMENTS, and one each for $1 to $9. If a command has
// no such placeholder, the words are added at its end.
func (c component) expand(args string) string {
	words := strings.Fields(args)
	pairs := []string{"$ARGUMENTS", args}
	for i := range 9 {
		word := ""
		if i < len(words) {
			word = words[i]
		}
		pairs = append(pairs, "$"+string(rune('1'+i)), word)
	}
	text := strings.NewReplacer(pairs...).Replace(c.body)
	if text == c.body && args != "" {
		text += "\n\n" + args
	}
	return text
}

// composed is the text and the settings of a question, together with those of its components.
type composed struct {
	question, instructions string
	model, language        string
	maxTokens              int
}

// compose finds the components that a question names.
func (c *Components) compose(q hutch.Question) (composed, error) {
	t := composed{question: q.Question}
	if c == nil {
		c = &Components{}
	}
	if q.Command != "" {
		m, ok := c.commands[q.Command]
		if !ok {
			return t, unknown("command", q.Command, c.commands)
		}
		if m.err != nil {
			return t, m.err
		}
		t.question = m.expand(q.Question)
		t.take(m)
	}
	if q.Agent != "" {
		a, ok := c.agents[q.Agent]
		if !ok {
			return t, unknown("agent", q.Agent, c.agents)
		}
		if a.err != nil {
			return t, a.err
		}
		t.instructions = a.body
		t.take(a)
	}
	if len(t.question) > 2*hutch.MaxQuestion {
		return t, hutch.Errorf(hutch.Invalid, "the question has %d bytes with its command, over the limit of %d", len(t.question), 2*hutch.MaxQuestion)
	}
	return t, nil
}

// take takes over the settings of a component, except settings that an earlier component has made.
func (t *composed) take(c component) {
	if t.model == "" && !alias[c.Model] {
		t.model = c.Model
	}
	if t.language == "" {
		t.language = c.Language
	}
	if t.maxTokens == 0 {
		t.maxTokens = c.MaxTokens
	}
}

// alias holds Claude Code's names for models. In a component, each of them means the server's model.
var alias = map[string]bool{"inherit": true, "sonnet": true, "opus": true, "haiku": true}

func unknown(kind, name string, have map[string]component) error {
	names := slices.Sorted(maps.Keys(have))
	known := "there are none: start the server with --ask-components DIR"
	if len(names) > 0 {
		known = "use one of " + clip(strings.Join(names, ", "), 500)
	}
	return hutch.Errorf(hutch.Invalid, "unknown %s %q: %s", kind, clip(name, 60), known).Naming(hutch.AboutField, kind)
}
