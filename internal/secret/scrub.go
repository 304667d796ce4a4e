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

// json returns a JSON value with the secrets replaced in it, however its strings are escaped.
func (r *Redactor) json(b json.RawMessage) json.RawMessage {
	if bytes.IndexByte(b, '\\') < 0 && len(r.Bytes(b)) == len(b) {
		return b
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return r.Bytes(b)
	}
	clean := scrub(r, v)
	if reflect.DeepEqual(clean, v) {
		return b
	}
	text, err := json.Marshal(clean)
	if err != nil {
		return json.RawMessage(`null`) // cannot happen: it was decoded from JSON
	}
	return text
}

// binary reports whether a MIME type is binary, so that nothing can be replaced in it.
func binary(mime string) bool {
	return strings.HasPrefix(mime, "image/") && mime != "image/svg+xml" || mime == "application/pdf"
}
