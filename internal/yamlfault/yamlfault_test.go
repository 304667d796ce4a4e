package yamlfault_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"hutch/internal/yamlfault"
)

type step struct {
	Name  string            `yaml:"name"`
	Tries int               `yaml:"tries"`
	Needs []string          `yaml:"needs"`
	Env   map[string]string `yaml:"env"`
	Part  *step             `yaml:"part"`
	On    bool              `yaml:"on"`
}

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"tries: many":           "line 1: `many` is a text: write a whole number",
		"tries: true":           "line 1: `true` is a boolean: write a whole number",
		"name: [a]":             "line 1: the value is a list: write a text; quotes make a text of a number",
		"needs: build":          "line 1: `build` is a text: write a list",
		"env: [A]":              "line 1: the value is a list: write a map",
		"on: 7":                 "line 1: `7` is a number: write true or false",
		"part: x":               "line 1: `x` is a text: write a map with the fields of a step",
		"nmae: x":               `line 1: a step has no field "nmae"`,
		"tries: many\nneeds: x": "line 1: `many` is a text: write a whole number; line 2: `x` is a text: write a list",
		"name: [":               "line 1: did not find expected node content",
	} {
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		var s step
		err := d.Decode(&s)
		if err == nil {
			t.Errorf("%q is decoded", text)
			continue
		}
		if got := yamlfault.Words(err, map[string]string{"yamlfault_test.step": "step"}); got != want {
			t.Errorf("%q: %s\nwant %s", text, got, want)
		}
	}
}
