package settings

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// entry is the value of one key, as texts for its flag.
type entry struct {
	at    Origin
	texts []string
}

// read reads a file. If the file has an error, it still returns the valid part.
func (p Program) read(flags *pflag.FlagSet, file string) (map[string]entry, error) {
	doc, err := parse(file)
	if err != nil || doc == nil {
		return nil, err
	}
	if doc.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: this is %s: write a setting in each line, such as `listen: 127.0.0.1:7700`", file, doc.Line, kind(doc))
	}
	found := map[string]entry{}
	var wrong []error
	for i := 0; i < len(doc.Content); i += 2 {
		key, value := doc.Content[i], doc.Content[i+1]
		at := Origin{File: file, Line: key.Line}
		f := flags.Lookup(key.Value)
		before, twice := found[key.Value]
		switch {
		case f == nil || !p.Is(f):
			wrong = append(wrong, fmt.Errorf("%s: there is no setting %q%s", at, key.Value, p.Meant(key.Value, p.Names(flags))))
			continue
		case twice:
			wrong = append(wrong, fmt.Errorf("%s: %s is set twice: it is also in line %d", at, key.Value, before.at.Line))
			continue
		}
		texts, err := read(f, value)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s %w", at, key.Value, err))
			continue
		}
		found[key.Value] = entry{at, texts}
	}
	return found, errors.Join(wrong...)
}

// parse returns the document in a file; nil if the file is empty.
func parse(file string) (*yaml.Node, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the configuration: %w: check the path of the file, or write the file; without one, each setting has its default", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is longer than a MiB: a configuration is not", file)
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := in.Decode(&doc); {
	case err == io.EOF:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s is not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := in.Decode(&more); err != io.EOF {
		return nil, fmt.Errorf("%s has more than one document: remove what begins with ---", file)
	}
	if root := doc.Content[0]; root.Tag != "!!null" {
		return root, nil
	}
	return nil, nil
}

// read turns a value of the file into texts for a flag.
func read(f *pflag.Flag, n *yaml.Node) ([]string, error) {
	switch typ := f.Value.Type(); {
	case n.Tag == "!!null":
		return nil, errors.New("has no value: give one, or make the line a comment with #")
	case n.Kind == yaml.AliasNode:
		return nil, errors.New("is an alias: write the value itself")
	case typ == "stringToString" && n.Kind == yaml.MappingNode:
		return pairs(n)
	case (typ == "stringSlice" || typ == "stringArray") && n.Kind == yaml.SequenceNode:
		return items(typ, n)
	case n.Kind != yaml.ScalarNode:
		return nil, fmt.Errorf("is %s: it takes %s", kind(n), takes(f))
	}
	return scalar(f, n)
}

// scalar checks the type of a value that is neither a list nor a map.
func scalar(f *pflag.Flag, n *yaml.Node) ([]string, error) {
	fits := n.Tag == "!!str"
	switch f.Value.Type() {
	case "bool":
		fits = n.Tag == "!!bool"
	case "int", "int64":
		fits = n.Tag == "!!int"
	case "float64":
		fits = n.Tag == "!!int" || n.Tag == "!!float"
	case "time": // 0 is valid, and the flag reports a number without a unit
		fits = fits || n.Tag == "!!int" || n.Tag == "!!float"
	default:
		fits = fits || n.Tag == "!!bool" && f.NoOptDefVal != ""
	}
	if !fits {
		return nil, fmt.Errorf("is %s, %s: it takes %s", n.Value, kind(n), takes(f))
	}
	return []string{n.Value}, nil
}

// items returns the texts of a list.
func items(typ string, list *yaml.Node) (texts []string, err error) {
	for _, n := range list.Content {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
			return nil, fmt.Errorf("has an item that is %s: it takes a list of texts; quotes make a text of a number", kind(n))
		}
		text := n.Value
		if typ == "stringSlice" { // its flag splits at commas
			text = record(text)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// pairs returns the texts NAME=VALUE of a map.
func pairs(m *yaml.Node) (texts []string, err error) {
	seen := map[string]bool{}
	for i := 0; i < len(m.Content); i += 2 {
		name, value := m.Content[i], m.Content[i+1]
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
			return nil, fmt.Errorf("has no plain value for %q", name.Value)
		}
		if seen[name.Value] {
			return nil, fmt.Errorf("has %q twice", name.Value)
		}
		seen[name.Value] = true
		texts = append(texts, record(name.Value+"="+value.Value))
	}
	return texts, nil
}

// record returns a text as a line of CSV with one field.
func record(text string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write([]string{text}) // cannot fail: it writes to memory
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// kind names the type of a value for people.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!bool":
		return "true or false"
	case n.Tag == "!!null":
		return "nothing"
	case n.Tag == "!!timestamp":
		return "a date"
	}
	return "a text"
}

// takes describes to people which values a flag takes.
func takes(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	case "time":
		return "a time such as 90s, 12h or 30d"
	case "stringSlice", "stringArray":
		return "a list of texts"
	case "stringToString":
		return "a map of names to values"
	}
	return "a text; quotes make a text of a number"
}
