package jsonfault

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const (
	maxValues = 100_000 // most values of a text that are checked
	maxPath   = 200     // bytes of a path; keys of maps can be longer
)

// walk reads the values of a valid JSON text, one after another.
type walk struct {
	text   []byte
	dec    *json.Decoder
	left   int  // values that can still be checked
	strict bool // an unknown field is a fault
}

// value reads the next value, which is for a variable of type t.
func (w *walk) value(t reflect.Type, path string) *Fault {
	if w.left--; w.left < 0 {
		return nil
	}
	t = bare(t)
	next := w.next()
	switch kind := t.Kind(); {
	case readsItself(t):
	case next == '{' && kind == reflect.Struct:
		fields := fieldsOf(t)
		return w.object(path, fields, func(name string) reflect.Type { return find(fields, name) })
	case next == '{' && kind == reflect.Map && t.Key().Kind() == reflect.String && !readsItself(t.Key()):
		return w.object(path, nil, func(string) reflect.Type { return t.Elem() })
	case next == '[' && (kind == reflect.Slice || kind == reflect.Array):
		return w.array(path, t.Elem())
	}
	err := w.dec.Decode(reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	if name, ok := strings.CutPrefix(err.Error(), unknownPrefix); ok { // from a type with its own decoder
		return &Fault{Path: bounded(join(path, strings.Trim(name, `"`))), Unknown: true}
	}
	f := &Fault{Path: path, Err: err}
	f.describe(t, next)
	return f
}

// object reads an object. typeOf returns nil for the name of an unknown field.
func (w *walk) object(path string, known []field, typeOf func(name string) reflect.Type) *Fault {
	w.dec.Token() // the brace: the text is JSON
	for w.dec.More() {
		key, _ := w.dec.Token()
		name, _ := key.(string)
		at := bounded(join(path, name))
		t := typeOf(name)
		switch {
		case t == nil && w.strict:
			return &Fault{Path: at, Unknown: true, Known: namesOf(known)}
		case t == nil:
			t = reflect.TypeFor[json.RawMessage]()
		}
		if f := w.value(t, at); f != nil || w.left < 0 {
			return f
		}
	}
	w.dec.Token()
	return nil
}

func (w *walk) array(path string, t reflect.Type) *Fault {
	w.dec.Token() // the bracket
	for i := 0; w.dec.More(); i++ {
		if f := w.value(t, bounded(fmt.Sprintf("%s[%d]", path, i))); f != nil || w.left < 0 {
			return f
		}
	}
	w.dec.Token()
	return nil
}

// next returns the first byte of the next value.
func (w *walk) next() byte {
	for _, b := range w.text[w.dec.InputOffset():] {
		if !strings.ContainsRune(" \t\r\n:,", rune(b)) {
			return b
		}
	}
	return 0
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func bounded(path string) string {
	if len(path) > maxPath {
		path = path[:maxPath] + "..."
	}
	return strings.ToValidUTF8(path, "")
}

// bare returns a type without pointers.
func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// readsItself reports whether a type has its own method that reads JSON or text.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) || readsText(t)
}

func readsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// field is a field of a JSON object.
type field struct {
	name string
	of   reflect.Type
}

// fieldsOf returns the JSON fields of a struct, in the order of the type. A field of an embedded struct can have the
// name of that struct, which hides it in Go, but not in JSON.
func fieldsOf(t reflect.Type) (list []field) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" && bare(f.Type).Kind() == reflect.Struct:
			list = append(list, fieldsOf(bare(f.Type))...)
		case f.IsExported():
			list = append(list, field{cmp.Or(name, f.Name), f.Type})
		}
	}
	return list
}

// find looks up a field as encoding/json does: it ignores case.
func find(list []field, name string) reflect.Type {
	i := slices.IndexFunc(list, func(f field) bool { return strings.EqualFold(f.name, name) })
	if i < 0 {
		return nil
	}
	return list[i].of
}

func namesOf(list []field) (names []string) {
	for _, f := range list {
		names = append(names, f.name)
	}
	return names
}
