package api

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
)

// example is a value of the document as JSON, with its fields in the order of the document.
type example struct {
	JSON string
	text string // set if the value is a text
	list []string
}

func (e *example) UnmarshalYAML(n *yaml.Node) error {
	b, err := appendJSON(nil, n)
	if err != nil {
		return err
	}
	e.JSON = string(b)
	if n.Kind == yaml.ScalarNode {
		e.text = n.Value
	}
	for _, item := range n.Content {
		if n.Kind == yaml.SequenceNode {
			e.list = append(e.list, item.Value)
		}
	}
	return nil
}

// Pretty returns the value for people: over several lines when it is long.
func (e *example) Pretty() string {
	const line = 100
	var b bytes.Buffer
	if len(e.JSON) <= line || json.Indent(&b, []byte(e.JSON), "", "  ") != nil {
		return e.JSON
	}
	return b.String()
}

func appendJSON(b []byte, n *yaml.Node) (_ []byte, err error) {
	switch n.Kind {
	case yaml.MappingNode:
		return appendItems(append(b, '{'), n.Content, '}', 2)
	case yaml.SequenceNode:
		return appendItems(append(b, '['), n.Content, ']', 1)
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// appendItems appends the items of a list or object. An object has two nodes for each item.
func appendItems(b []byte, nodes []*yaml.Node, end byte, each int) (_ []byte, err error) {
	for i, n := range nodes {
		switch {
		case i > 0 && i%each == 0:
			b = append(b, ", "...)
		case i%each == 1:
			b = append(b, ": "...)
		}
		if b, err = appendJSON(b, n); err != nil {
			return nil, err
		}
	}
	return append(b, end), nil
}

// Curl returns a command line that makes the call of the examples; empty for WebSockets, which curl does not speak.
func (o operation) Curl() string {
	for _, r := range o.Responses {
		if r.Key == "101" {
			return ""
		}
	}
	path, query, args := o.Path, "", ""
	for _, p := range o.Parameters {
		switch {
		case p.Example == nil:
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example.text)
		case p.In == "header":
			args += " -H " + quoted(p.Name+": "+p.Example.text)
		case p.Example.list != nil:
			for _, v := range p.Example.list {
				query += "&" + p.Name + "=" + url.QueryEscape(v)
			}
		default:
			query += "&" + p.Name + "=" + url.QueryEscape(p.Example.text)
		}
	}
	if query != "" {
		query = "?" + query[1:]
	}
	return `curl -sS -H "Authorization: Bearer $HUTCH_TOKEN"` + o.method() + args + o.data() + ` "$HUTCH_URL` + path + query + `"`
}

// method returns curl's flag for the operation's method, or "" if it is curl's default.
func (o operation) method() string {
	if o.Method == "GET" || o.Method == "POST" && o.RequestBody != nil {
		return ""
	}
	return " -X " + o.Method
}

// data returns the flags for the body.
func (o operation) data() string {
	if o.RequestBody == nil {
		return ""
	}
	for _, c := range o.RequestBody.Content {
		switch {
		case c.Value.Example == nil:
		case c.Key == "application/json":
			return " -d " + quoted(c.Value.Example.JSON)
		case c.Key == "multipart/form-data":
			return formFlags(c.Value.Example.JSON)
		default:
			return " -H " + quoted("Content-Type: "+c.Key) + " --data-binary " + quoted(c.Value.Example.text)
		}
	}
	return ""
}

// formFlags returns the flags for the parts of a build: a request, and then a context.
func formFlags(example string) string {
	var parts struct {
		Request json.RawMessage
		Context string
	}
	if err := json.Unmarshal([]byte(example), &parts); err != nil {
		panic(err) // the document is our own
	}
	return " -F " + quoted("request="+string(parts.Request)) + " -F " + quoted("context="+parts.Context)
}

// quoted returns s as one word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
