package jsonfault_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/jsonfault"
)

type inner struct {
	Port  uint16            `json:"port"`
	Env   map[string]string `json:"env"`
	Ratio float64           `json:"ratio"`
}

// Name has a field with the name of the type. Where Name is embedded, Go does not promote this field, but encoding/json
// does.
type Name struct {
	Name string `json:"name"`
}

type outer struct {
	Name
	On    *bool              `json:"on"`
	Count int                `json:"count"`
	Data  []byte             `json:"data"`
	At    time.Time          `json:"at"`
	Words []string           `json:"words"`
	Inner *inner             `json:"inner"`
	Many  []inner            `json:"many"`
	Rules hutch.NetworkRules `json:"rules"`
	Mode  hutch.FileMode     `json:"mode"`
	File  hutch.QuestionFile `json:"file"`
	Any   any                `json:"any"`
}

func decode(text string, strict bool) (v outer, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if strict {
		d.DisallowUnknownFields()
	}
	return v, d.Decode(&v)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"inner":{"env":{"HOST":"a","PORT":8080}}}`: `the field "inner.env.PORT" cannot be a number: give a string`,
		`{"many":[{"port":1},{"env":{"A":[1]}}]}`:    `the field "many[1].env.A" cannot be an array: give a string`,
		`{"many": [ {"port" : 70000} ]}`:             `the field "many[0].port" cannot be the number 70000: give a smaller number`,
		`{"inner":{"port":-1}}`:                      `the field "inner.port" cannot be the number -1: give a whole number from 0`,
		`{"inner":{"ratio":1e999}}`:                  `the field "inner.ratio" cannot be the number 1e999: give a smaller number`,
		`{"count":1.5}`:                              `the field "count" cannot be the number 1.5: give a whole number`,
		`{"COUNT":"1"}`:                              `the field "COUNT" cannot be a string: give a whole number`,
		`{"name":{}}`:                                `the field "name" cannot be an object: give a string`,
		`{"on":"yes"}`:                               `the field "on" cannot be a string: give true or false`,
		`{"words":true}`:                             `the field "words" cannot be a boolean: give an array`,
		`{"words":["a",true]}`:                       `the field "words[1]" cannot be a boolean: give a string`,
		`{"inner":[]}`:                               `the field "inner" cannot be an array: give an object`,
		`{"data":"?"}`:                               `the field "data" is not base64: encode its bytes with the standard alphabet, as RFC 4648 has it`,
		`{"data":7}`:                                 `the field "data" cannot be a number: give a string`,
		`{"at":"today"}`:                             `the field "at" is not a time: write it as 2026-01-31T15:04:05Z`,
		`{"at":5}`:                                   `the field "at" is not a time: write it as 2026-01-31T15:04:05Z`,
		`{"rules":["a.example",7]}`:                  `the field "rules" has a number in it: give a string there`,
		`{"rules":"a.example"}`:                      `the field "rules" cannot be a string: give an array`,
		`{"mode":644}`:                               `the field "mode" cannot be a number: give a string`,
		`{"file":{"path":7}}`:                        `the field "file.path" cannot be a number: give a string`,
		`{"file":{"name":"a"}}`:                      `there is no field "file.name" here: leave it out`,
		`[1]`:                                        `the body cannot be an array: give an object`,
		`{"colour":1}`:                               `there is no field "colour" here: use name, on, count, data, at, words, inner, many, rules, mode, file or any`,
		`{"any":{"x":1},"inner":{"env":{},"prot":1}}`: `there is no field "inner.prot" here: use port, env or ratio`,
		`{"many":[{"x":1}]}`:                          `there is no field "many[0].x" here: use port, env or ratio`,
		" ":                                           `the body is empty: send JSON`,
		`{`:                                           `the body is not complete JSON: it ends too early, at byte 1`,
		`{"count":1,}`:                                `the body is not valid JSON: invalid character '}' looking for beginning of object key string, at byte 12`,
		`{"inner":{"env":{"` + strings.Repeat("k", 300) + `":1}}}`: `the field "inner.env.` + strings.Repeat("k", 190) + `..." cannot be a number: give a string`,
	} {
		v, err := decode(text, true)
		if err == nil {
			t.Errorf("%s is decoded", text)
			continue
		}
		got := jsonfault.Explain([]byte(text), &v, err)
		if got.Kind != hutch.Invalid || got.Message != want {
			t.Errorf("%s: %s\nwant %s", text, got.Message, want)
		}
	}
}

// Without strictness, an unknown field is skipped with everything in it.
func TestLenient(t *testing.T) {
	t.Parallel()
	const text = `{"colour":{"a":[1,2,{}]},"x":null,"inner":{"y":1,"port":"80"}}`
	v, err := decode(text, false)
	f := jsonfault.Find([]byte(text), &v, err)
	if f == nil || f.Path != "inner.port" || f.Found != "a string" || f.Want != "a whole number from 0" {
		t.Errorf("%+v, %v", f, err)
	}
	if subject, name := jsonfault.Explain([]byte(text), &v, err).About(); subject != hutch.AboutField || name != "inner.port" {
		t.Errorf("it is about %s %s", subject, name)
	}
}

// TestManyValues: the search for a fault ends after a bounded number of values.
func TestManyValues(t *testing.T) {
	t.Parallel()
	text := `{"words":[` + strings.Repeat(`"",`, 200_000) + `7]}`
	v, err := decode(text, true)
	if f := jsonfault.Find([]byte(text), &v, err); f != nil {
		t.Errorf("%+v", f)
	}
	if e := jsonfault.Explain([]byte(text), &v, err); e.Kind != hutch.Invalid || e.Cause == nil {
		t.Errorf("%+v", e)
	}
}
