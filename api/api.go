// Package api is the description of the REST API: an OpenAPI document, which the server serves unchanged, as JSON and
// as a page for people. Tests compare it with the server.
package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// YAML is the document as it is written.
//
//go:embed openapi.yaml
var YAML []byte

//go:embed page.html
var pageText string

// JSON is the document as JSON.
var JSON = sync.OnceValue(func() []byte {
	var doc any
	must(yaml.Unmarshal(YAML, &doc))
	b, err := json.MarshalIndent(doc, "", "  ")
	must(err)
	return b
})

// Page is the document as HTML, which loads nothing and runs nothing.
var Page = sync.OnceValue(func() []byte {
	doc := parsed()
	t := template.Must(template.New("page").Funcs(functions).Parse(pageText))
	var b bytes.Buffer
	must(t.Execute(&b, doc.sections()))
	return b.Bytes()
})

var functions = template.FuncMap{
	"css":   func() template.CSS { return template.CSS(Style()) },
	"lower": strings.ToLower,
}

// parsed is the part of the document that the page shows.
var parsed = sync.OnceValue(func() (doc document) {
	must(yaml.Unmarshal(YAML, &doc))
	return doc
})

// must panics on an error. There is never one, because the document is part of the program and tests parse it.
func must(err error) {
	if err != nil {
		panic("api: " + err.Error())
	}
}

// document is the part of the document that the page shows.
type document struct {
	Info struct {
		Title, Summary, Description string
	}
	Tags  []struct{ Name, Description string }
	Paths ordered[struct {
		Parameters []parameter
		Get        *operation
		Post       *operation
		Put        *operation
		Patch      *operation
		Delete     *operation
	}]
	Components struct {
		Parameters map[string]parameter
		Responses  struct{ Problem body }
		Schemas    ordered[schema]
	}
}

type operation struct {
	Method, Path         string `yaml:"-"`
	ID                   string `yaml:"operationId"`
	Tags                 []string
	Summary, Description string
	Parameters           []parameter
	RequestBody          *body `yaml:"requestBody"`
	Responses            ordered[body]
}

type parameter struct {
	Ref                   string `yaml:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                schema
	Example               *example
}

type body struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     ordered[struct {
		Schema  schema
		Example *example
	}]
}

type schema struct {
	Ref         string `yaml:"$ref"`
	Type        string
	Format      string
	Description string
	Enum        []string
	Required    []string
	Items       *schema
	Properties  ordered[schema]
}

// Name returns the name of the schema that s or its items refer to.
func (s schema) Name() string {
	if s.Items != nil {
		return s.Items.Name()
	}
	return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
}

// Kind names the kind of a value.
func (s schema) Kind() string {
	switch {
	case s.Items != nil && s.Items.Ref == "":
		return "array of " + s.Items.Kind()
	case s.Items != nil:
		return "array of"
	case len(s.Enum) > 0:
		return strings.Join(s.Enum, " | ")
	case s.Format != "":
		return s.Format
	}
	return s.Type
}

// Needs reports whether an object must have the property.
func (s schema) Needs(name string) bool {
	return slices.Contains(s.Required, name)
}

// ordered is a mapping that keeps its order.
type ordered[T any] []item[T]

type item[T any] struct {
	Key   string
	Value T
}

func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		it := item[T]{Key: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&it.Value); err != nil {
			return err
		}
		*o = append(*o, it)
	}
	return nil
}

// section is the content of the page under one heading.
type section struct {
	Name, Description string
	Operations        []operation
}

type page struct {
	document
	Sections []section
}

// sections groups the operations by their tags.
func (d document) sections() page {
	p := page{document: d}
	for _, tag := range d.Tags {
		s := section{Name: tag.Name, Description: tag.Description}
		for _, op := range d.operations() {
			if len(op.Tags) == 1 && op.Tags[0] == tag.Name {
				s.Operations = append(s.Operations, op)
			}
		}
		p.Sections = append(p.Sections, s)
	}
	return p
}

func (d document) operations() (all []operation) {
	for _, path := range d.Paths {
		for _, m := range []item[*operation]{{"GET", path.Value.Get}, {"POST", path.Value.Post}, {"PUT", path.Value.Put}, {"PATCH", path.Value.Patch}, {"DELETE", path.Value.Delete}} {
			if m.Value == nil {
				continue
			}
			op := *m.Value
			op.Method, op.Path = m.Key, path.Key
			op.Parameters = append(d.resolve(path.Value.Parameters), d.resolve(op.Parameters)...)
			all = append(all, op)
		}
	}
	return all
}

func (d document) resolve(list []parameter) (all []parameter) {
	for _, p := range list {
		if p.Ref != "" {
			p = d.Components.Parameters[p.Ref[strings.LastIndex(p.Ref, "/")+1:]]
		}
		all = append(all, p)
	}
	return all
}

// Style returns the style sheet of the page. The server allows it by its hash.
func Style() string {
	_, rest, _ := strings.Cut(pageText, "{{/* style:")
	style, _, _ := strings.Cut(rest, "*/ -}}")
	return style
}
