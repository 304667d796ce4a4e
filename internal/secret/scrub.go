package secret

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"hutch"
)

// scrub returns v with the secrets replaced in every text in it, at any depth, so that a future field of v's type is
// not forgotten. It does not change data that v shares with others.
func scrub[T any](r *Redactor, v T) T {
	if r == nil {
		return v
	}
	copied := reflect.New(reflect.TypeFor[T]()).Elem()
	copied.Set(r.value(reflect.ValueOf(&v).Elem()))
	return copied.Interface().(T)
}

// scrubTarget replaces the secrets in a pointer's target; nil has none.
func scrubTarget(r *Redactor, pointer any) {
	if r == nil || pointer == nil {
		return
	}
	target := reflect.ValueOf(pointer).Elem()
	target.Set(r.value(target))
}

var (
	rawJSON = reflect.TypeFor[json.RawMessage]()
	number  = reflect.TypeFor[json.Number]()
	health  = reflect.TypeFor[hutch.ProcessHealth]()
)

func (r *Redactor) value(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		if s := r.String(v.String()); v.Type() == number && s != v.String() {
			return reflect.ValueOf(s) // it is not a number
		}
		return reflect.ValueOf(r.String(v.String())).Convert(v.Type())
	case reflect.Pointer, reflect.Interface:
		return r.pointed(v)
	case reflect.Slice:
		return r.slice(v)
	case reflect.Map:
		return r.mapped(v)
	case reflect.Struct:
		return r.fields(v)
	}
	return v
}

func (r *Redactor) pointed(v reflect.Value) reflect.Value {
	if v.IsNil() {
		return v
	}
	if v.Kind() == reflect.Interface {
		return r.value(v.Elem())
	}
	p := reflect.New(v.Type().Elem())
	p.Elem().Set(r.value(v.Elem()))
	return p
}

func (r *Redactor) slice(v reflect.Value) reflect.Value {
	switch {
	case v.IsNil():
		return v
	case v.Type() == rawJSON:
		return reflect.ValueOf(r.json(v.Bytes()))
	case v.Type().Elem().Kind() == reflect.Uint8:
		return reflect.ValueOf(r.Bytes(v.Bytes())).Convert(v.Type())
	}
	list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		list.Index(i).Set(r.value(v.Index(i)))
	}
	return list
}

func (r *Redactor) mapped(v reflect.Value) reflect.Value {
	if v.IsNil() {
		return v
	}
	m := reflect.MakeMapWithSize(v.Type(), v.Len())
	for k, e := range v.Seq2() {
		m.SetMapIndex(r.value(k), r.value(e))
	}
	return m
}

// fields leaves out structs without exported fields, such as a time, which hold no text.
func (r *Redactor) fields(v reflect.Value) reflect.Value {
	s := reflect.New(v.Type()).Elem()
	s.Set(v)
	for i := range s.NumField() {
		if s.Type().Field(i).IsExported() && !isError(s.Type().Field(i).Type) {
			s.Field(i).Set(r.value(v.Field(i)))
		}
	}
	if v.Type() == health { // its output is the beginning of a longer one
		h := v.Interface().(hutch.ProcessHealth)
		s.FieldByName("Output").SetString(r.Excerpt(h.Output))
	}
	return s
}

func isError(t reflect.Type) bool { return t == reflect.TypeFor[error]() }

// json returns a JSON value with the secrets replaced in its strings and numbers, however they are escaped. It decodes
// one of them at a time: all values of a text together can take fifty times its memory.
func (r *Redactor) json(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return b
	}
	if clean := r.Bytes(b); &clean[0] == &b[0] && bytes.IndexByte(b, '\\') < 0 {
		return b
	} else if !json.Valid(b) {
		return clean
	}
	var out []byte
	done := 0 // bytes of b that are in out
	for i := 0; i < len(b); {
		token := b[i : i+tokenLength(b[i:])]
		if len(token) == 0 {
			i++
			continue
		}
		if clean := r.jsonToken(token); clean != nil {
			out, done = append(append(out, b[done:i]...), clean...), i+len(token)
		}
		i += len(token)
	}
	if done > 0 {
		b = append(out, b[done:]...)
	}
	if clean := r.Bytes(b); &clean[0] != &b[0] { // a secret that is JSON itself, or a part of it
		b, _ = json.Marshal(string(clean)) // texts can always be encoded
	}
	return b
}

// tokenLength returns the length of the string or number with which b begins, in valid JSON; 0 for anything else.
func tokenLength(b []byte) int {
	switch c := b[0]; {
	case c == '-' || '0' <= c && c <= '9':
		return len(b) - len(bytes.TrimLeft(b, "0123456789+-.eE"))
	case c != '"':
		return 0
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// jsonToken returns a string or number of JSON without its secrets; nil if it has none. A number becomes a string.
func (r *Redactor) jsonToken(token []byte) []byte {
	text := string(token)
	if token[0] == '"' && json.Unmarshal(token, &text) != nil {
		return nil // cannot happen: the JSON is valid
	}
	clean := r.String(text)
	if clean == text {
		return nil
	}
	b, _ := json.Marshal(clean) // texts can always be encoded
	return b
}

// binary reports whether a MIME type is binary, so that nothing can be replaced in it.
func binary(mime string) bool {
	return strings.HasPrefix(mime, "image/") && mime != "image/svg+xml" || mime == "application/pdf"
}
