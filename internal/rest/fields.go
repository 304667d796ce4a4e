package rest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"hutch"
)

// unknownField returns the error for a field in b that the type t does not have, or nil. It suggests similar fields.
func unknownField(b []byte, t reflect.Type) error {
	known := fieldsOf(t)
	if known == nil {
		return nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(b, &object) != nil {
		return nil
	}
	for name, value := range object {
		below, ok := find(known, name)
		if !ok {
			return hutch.Errorf(hutch.Invalid, "there is no field %.80q here: use %s", name, oneOf(namesOf(known))).Naming(hutch.AboutField, name)
		}
		if err := unknownField(value, below); err != nil {
			return err
		}
	}
	return nil
}

// field is a field of a JSON object.
type field struct {
	name string
	of   reflect.Type
}

// fieldsOf returns the JSON fields of a struct, in the order of the type; nil if t is not a struct.
func fieldsOf(t reflect.Type) (list []field) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		list = append(list, field{name, f.Type})
	}
	return list
}

// find looks up a field as encoding/json does: it ignores case.
func find(list []field, name string) (reflect.Type, bool) {
	i := slices.IndexFunc(list, func(f field) bool { return strings.EqualFold(f.name, name) })
	if i < 0 {
		return nil, false
	}
	return list[i].of, true
}

func namesOf(list []field) (names []string) {
	for _, f := range list {
		names = append(names, f.name)
	}
	return names
}

// oneOf lists names for a sentence: "a, b or c".
func oneOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// jsonPath is a field's path without the names of embedded Go types, which encoding/json inserts.
func jsonPath(path string) string {
	parts := slices.DeleteFunc(strings.Split(path, "."), func(part string) bool { return part != "" && 'A' <= part[0] && part[0] <= 'Z' })
	return strings.Join(parts, ".")
}
