package build

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"hutch"
)

// A Dockerfile of a few lines can make the frontend need any amount of memory: each of ten lines names the variable of
// the previous line ten times, or each of many steps has a copy of a large environment. So the frontend's memory is
// estimated before it runs, with the frontend's own parser, and estimated again with the variables and the triggers of
// each base image as soon as they are known. The estimate is never too low.

const (
	mostLines        = 20_000    // most lines of a Dockerfile
	mostInstructions = 5000      // most instructions of a Dockerfile
	mostStages       = 250       // most stages of a Dockerfile
	mostName         = 256       // bytes of the name of a variable
	mostUses         = 4096      // most uses of variables in one instruction
	mostExpanded     = 256 << 10 // bytes by which variables make an instruction longer
	mostMade         = 64 << 20  // bytes of all instructions, with a copy of the environment for each step
	mostCompared     = 1 << 29   // pairs of letters that are compared
	mostConfigs      = 64 << 20  // bytes of the configurations of base images
	perVariable      = 128       // bytes that the frontend needs for each variable
)

// growth estimates how much a Dockerfile makes the frontend do.
type growth struct {
	lines   []instruction
	onbuild []instruction  // triggers of base images
	given   map[string]int // sizes of variables from outside: arguments, and variables of base images
	total   int            // bytes of these variables
	configs int            // bytes of the configurations of base images
	bases   map[string]bool
}

// instruction is a line of a Dockerfile, reduced to its variables. A document in a line counts as a separate
// instruction, and so does each variable that a line sets.
type instruction struct {
	text    string
	from    bool // the instruction begins a stage
	step    bool // the instruction has a copy of the environment
	times   int  // how often the instruction's own text is repeated
	trigger bool // the instruction runs when another stage begins from this stage
	uses    []use
	stays   bool   // all later steps have a copy of the variable
	sets    bool   // the instruction sets a variable
	name    string // name of the variable; empty if it is not known yet
}

// use is a variable in a text.
type use struct {
	name     string
	replaced bool // each match of a pattern in its value becomes another text
}

// measure estimates a Dockerfile whose base images are not known yet. A Dockerfile that cannot be parsed has no lines:
// the frontend reports the error.
func measure(text []byte, args map[string]string) (*growth, error) {
	g := &growth{given: map[string]int{"PATH": 100}, bases: map[string]bool{}} // PATH is for images without variables
	for name, value := range args {
		g.give(name, value)
	}
	if bytes.Count(text, []byte("\n")) > mostLines {
		return nil, tooLong("more than %d lines", mostLines)
	}
	all, err := instructions(string(text))
	if err != nil {
		return nil, err
	}
	g.lines = all
	stages := 0
	for _, l := range all {
		if l.from {
			stages++
		}
	}
	if stages > mostStages {
		return nil, tooLong("more than %d stages", mostStages)
	}
	return g, g.check()
}

func tooLong(format string, args ...any) error {
	return hutch.Errorf(hutch.Exhausted, "the Dockerfile has "+format+": make several images of it", args...).With("limit", "dockerfile")
}

func (g *growth) give(name, value string) {
	g.given[name] = max(g.given[name], len(value))
	g.total += len(name) + len(value) + perVariable
}

// base counts the variables and triggers of a base image.
func (g *growth) base(digest string, config []byte) error {
	if g.configs += len(config); g.configs > mostConfigs {
		return hutch.Errorf(hutch.Exhausted, "the configurations of the images in FROM have more than %d MiB together: use fewer images", mostConfigs>>20).With("limit", "configuration bytes")
	}
	if g.bases[digest] {
		return nil
	}
	g.bases[digest] = true
	var c struct {
		Config struct {
			Env, OnBuild, Shell []string
			WorkingDir, User    string
		}
		History []json.RawMessage
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	for _, env := range c.Config.Env {
		name, value, _ := strings.Cut(env, "=")
		g.give(name, value)
	}
	g.total += len(strings.Join(c.Config.Shell, " ")) + len(c.Config.WorkingDir) + len(c.Config.User)
	if text := strings.Join(c.Config.OnBuild, "\n"); len(text) > hutch.MaxDockerfile || strings.Count(text, "\n") > mostInstructions-len(g.onbuild) || len(c.History) > mostInstructions {
		return hutch.Errorf(hutch.Exhausted, "an image in FROM has more than %d triggers of ONBUILD, or lines of history: use another image", mostInstructions).With("limit", "dockerfile")
	}
	for _, text := range c.Config.OnBuild {
		all, err := instructions(text)
		if err != nil {
			return err
		}
		g.onbuild = append(g.onbuild, all...)
	}
	return g.check()
}

// instructions parses the text of a Dockerfile.
func instructions(text string) ([]instruction, error) {
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, nil // the frontend reports the same error
	}
	if len(parsed.AST.Children) > mostInstructions {
		return nil, tooLong("more than %d instructions", mostInstructions)
	}
	var all []instruction
	for _, node := range parsed.AST.Children {
		lines := linesOf(node)
		for _, l := range lines {
			long := func(u use) bool { return len(u.name) > mostName }
			if len(l.uses) > mostUses || len(l.name) > mostName || slices.ContainsFunc(l.uses, long) {
				return nil, tooLong("a line with more than %d variables, or with a name of more than %d bytes, %.80q", mostUses, mostName, l.text)
			}
		}
		all = append(all, lines...)
	}
	return all, nil
}

// linesOf returns an instruction, and any other instructions that it counts as.
func linesOf(node *parser.Node) []instruction {
	body, trigger := node, false
	if strings.EqualFold(node.Value, "onbuild") && node.Next != nil && len(node.Next.Children) > 0 {
		body, trigger = node.Next.Children[0], true
	}
	line := instruction{text: node.Original}
	var more []instruction
	switch name := strings.ToLower(body.Value); name {
	case "env", "label":
		for n := body.Next; n != nil && n.Next != nil; n = afterPair(n) {
			more = append(more, setting(n.Value, n.Value+"="+n.Next.Value, name == "env"))
		}
	case "arg":
		for n := body.Next; n != nil; n = n.Next {
			key, _, _ := strings.Cut(n.Value, "=")
			more = append(more, setting(key, n.Value, true))
		}
	case "add", "copy": // each source has the flags and the destination
		line.uses, line.step, line.times = usesOf(line.text), true, len(strings.FieldsFunc(line.text, betweenWords))
		for _, doc := range node.Heredocs {
			more = append(more, instruction{text: doc.Content, uses: usesOf(doc.Content)})
		}
	case "run": // variables are replaced only in the first line
		line.uses, line.step = usesOf(line.text), true
		for _, doc := range node.Heredocs {
			line.text += doc.Content
		}
	default:
		line.uses, line.from, line.step = usesOf(line.text), name == "from", name == "from" || name == "workdir"
		line.stays = slices.Contains([]string{"from", "shell", "user", "workdir"}, name)
	}
	more = append(more, line)
	for i := range more {
		more[i].trigger = trigger
	}
	return more
}

func betweenWords(r rune) bool { return r == ',' || unicode.IsSpace(r) }

// afterPair skips the name, the value and the sign between them.
func afterPair(n *parser.Node) *parser.Node {
	if n.Next.Next == nil {
		return nil
	}
	return n.Next.Next.Next
}

// plain is a name without special characters.
var plain = regexp.MustCompile(`^[\p{L}\p{N}_.-]+$`)

// setting returns a name and its value. A label is not a variable.
func setting(name, text string, variable bool) instruction {
	if !plain.MatchString(name) {
		name = ""
	}
	return instruction{text: text, uses: usesOf(text), sets: variable, stays: variable, name: name}
}

// variable is a name as the frontend reads it after a dollar sign.
var variable = regexp.MustCompile(`^(\p{Nd}+|[\p{L}\p{Nd}_]+|[@*#?$!-])`)

// usesOf counts every dollar sign as a variable, even if it is quoted.
func usesOf(text string) (all []use) {
	for {
		_, after, ok := strings.Cut(text, "$")
		if !ok || len(all) > mostUses {
			return all
		}
		text = after
		rest, braced := strings.CutPrefix(after, "{")
		name := variable.FindString(rest)
		all = append(all, use{name, braced && strings.HasPrefix(rest[len(name):], "/")})
	}
}

// count is the state of a check.
type count struct {
	sizes map[string]int // sizes of variables
	any   int            // uses whose names are not known
	all   int            // copies of the whole environment
	made  int

	letters, compared int // letters of all names; pairs of letters that the frontend compares to suggest a name for a missing one
}

// check counts all instructions, with each stage after the stages that it can be based on. Triggers are counted again
// at the beginning of each stage.
func (g *growth) check() error {
	c := count{sizes: maps.Clone(g.given), all: g.total}
	for name := range c.sizes {
		c.letters += len(name) + 1
	}
	triggers := g.onbuild[:len(g.onbuild):len(g.onbuild)]
	for _, l := range g.lines {
		if l.trigger {
			triggers = append(triggers, l)
			continue
		}
		if err := c.take(l); err != nil {
			return err
		}
		if !l.from {
			continue
		}
		for _, t := range triggers {
			if err := c.take(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostFactor keeps numbers from overflowing.
const mostFactor = 1 << 28

func (c *count) take(l instruction) error {
	n, factor := len(l.text), 1
	for _, u := range l.uses {
		size := max(c.sizes[u.name], c.any)
		n += size
		c.compared += (len(u.name) + 1) * c.letters
		if u.replaced { // uses can be nested
			factor = min(factor*(size+1), mostFactor)
		}
	}
	if n *= factor; n-len(l.text) > mostExpanded {
		return hutch.Errorf(hutch.Exhausted, "the line %.80q of the Dockerfile is more than %d KiB longer when its variables are replaced: write less into them", strings.TrimSpace(l.text), mostExpanded>>10).With("limit", "build variables")
	}
	switch {
	case l.sets && l.name == "":
		c.any, c.letters = max(c.any, n), c.letters+n
	case l.sets:
		if _, known := c.sizes[l.name]; !known {
			c.letters += len(l.name) + 1
		}
		c.sizes[l.name] = max(c.sizes[l.name], n)
	}
	if l.stays {
		c.all += n + perVariable
	}
	c.made += n * (1 + l.times)
	if l.step {
		c.made += c.all
	}
	if c.compared > mostCompared {
		return tooLong("too many variables, at %.80q", l.text)
	}
	if c.made > mostMade {
		return hutch.Errorf(hutch.Exhausted, "the steps of the Dockerfile have more than %d MiB of text and variables together: define fewer or shorter variables", mostMade>>20).With("limit", "build variables")
	}
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }
