// Package jsonfault finds the value of a JSON text that does not fit the Go type that the text is decoded into, and
// describes it for the author of the text. The errors of encoding/json name Go's types, and they do not name the keys
// of maps and the positions in arrays.
package jsonfault

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"hutch"
)

// Fault is a value that does not fit, or a field that does not exist.
type Fault struct {
	// Path leads to the value, such as env.PORT or actions[0].duration. It is empty for the whole text.
	Path string
	// Unknown is true for a field that does not exist. Known are then the fields that can be there instead.
	Unknown bool
	Known   []string
	// Found is the kind of the value and Want the kind that fits, such as "a number" and "a string". Both are empty if
	// the kind is right and the content is not.
	Found, Want string
	// Inside is true if the fault is somewhere inside the value at Path, because the type of that value reads its JSON
	// itself.
	Inside bool
	// Err is the decoder's error about the value; nil for an unknown field.
	Err error
}

// Find returns the first fault of a text, where err is the error of decoding the text into the value. It returns nil if
// the text is not JSON, or if the search ended before the fault, because the text has too many values.
func Find(text []byte, into any, err error) *Fault {
	if _, syntax := errors.AsType[*json.SyntaxError](err); syntax || isEarlyEnd(err) {
		return nil
	}
	w := walk{text: text, dec: json.NewDecoder(bytes.NewReader(text)), left: maxValues, strict: isUnknown(err)}
	return w.value(reflect.TypeOf(into), "")
}

// Explain returns the error for a text that cannot be decoded into a value, where err is the decoder's error. The text is
// the body of a request.
func Explain(text []byte, into any, err error) *hutch.Error {
	if own, ok := errors.AsType[*hutch.Error](err); ok { // from a type with its own decoder
		return own
	}
	if f := Find(text, into, err); f != nil {
		return f.Refusal()
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return hutch.Errorf(hutch.Invalid, "the body is empty: send JSON")
	}
	if isEarlyEnd(err) {
		return hutch.Errorf(hutch.Invalid, "the body is not complete JSON: it ends too early, at byte %d", len(text))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return hutch.Errorf(hutch.Invalid, "the body is not valid JSON: %s, at byte %d", syntax.Error(), syntax.Offset)
	}
	return hutch.Errorf(hutch.Invalid, "the body does not have the fields that this call takes").Because(err)
}

// isEarlyEnd reports whether the text ended within a value, or has none.
func isEarlyEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.HasPrefix(err.Error(), "unexpected end of JSON")
}

// Refusal describes the fault and says what to write instead.
func (f *Fault) Refusal() *hutch.Error {
	if own, ok := errors.AsType[*hutch.Error](f.Err); ok {
		return own
	}
	value := "the body"
	if f.Path != "" {
		value = fmt.Sprintf("the field %q", f.Path)
	}
	var words string
	switch {
	case f.Unknown && len(f.Known) == 0:
		words = fmt.Sprintf("there is no field %q here: leave it out", f.Path)
	case f.Unknown:
		words = fmt.Sprintf("there is no field %q here: use %s", f.Path, hutch.JoinNames(f.Known, "or"))
	case f.Inside:
		words = fmt.Sprintf("%s has %s in it: give %s there", value, f.Found, f.Want)
	case f.Found != "":
		words = fmt.Sprintf("%s cannot be %s: give %s", value, f.Found, f.Want)
	default:
		words = value + " " + content(f.Err)
	}
	e := hutch.Errorf(hutch.Invalid, "%s", words)
	if f.Path == "" {
		return e
	}
	return e.Naming(hutch.AboutField, f.Path)
}

// content describes the fault of a value that has the right kind.
func content(err error) string {
	if _, ok := errors.AsType[base64.CorruptInputError](err); ok {
		return "is not base64: encode its bytes with the standard alphabet, as RFC 4648 has it"
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok || strings.HasPrefix(err.Error(), "Time.UnmarshalJSON") {
		return "is not a time: write it as 2026-01-31T15:04:05Z"
	}
	return fmt.Sprintf("cannot be read: %.300s", strings.TrimPrefix(err.Error(), "json: "))
}

const unknownPrefix = "json: unknown field "

func isUnknown(err error) bool { return err != nil && strings.HasPrefix(err.Error(), unknownPrefix) }

// describe fills in what the decoder's error says about a value for type t. first is the first byte of the value.
func (f *Fault) describe(t reflect.Type, first byte) {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](f.Err)
	if !ok {
		return
	}
	f.Found, f.Want = found(wrong.Value), wanted(wrong)
	if wrong.Field != "" { // from a type with its own decoder
		f.Path = bounded(join(f.Path, wrong.Field))
		return
	}
	kind, _, _ := strings.Cut(wrong.Value, " ")
	f.Inside = wrong.Type != nil && bare(wrong.Type) != t && (first == '[' && kind != "array" || first == '{' && kind != "object")
}

// found names the kind of a value, for which encoding/json has the words "number", "number 1.5", "bool" and others.
func found(value string) string {
	switch kind, literal, _ := strings.Cut(value, " "); {
	case value == "bool":
		return "a boolean"
	case value == "null":
		return value
	case kind == "array", kind == "object":
		return "an " + value
	case kind == "number" && literal != "":
		return fmt.Sprintf("the number %.40s", literal)
	default:
		return "a " + value
	}
}

// wanted names the kind of value that fits a type.
func wanted(wrong *json.UnmarshalTypeError) string {
	if wrong.Type == nil {
		return "another value"
	}
	t := bare(wrong.Type)
	_, literal, _ := strings.Cut(wrong.Value, "number ")
	tooLarge := literal != "" && (!strings.ContainsAny(literal, ".eE-") || t.Kind() == reflect.Float64)
	switch kind := t.Kind(); {
	case kind == reflect.String, readsText(t):
		return "a string"
	case kind == reflect.Bool:
		return "true or false"
	case kind >= reflect.Int && kind <= reflect.Float64 && tooLarge:
		return "a smaller number"
	case kind >= reflect.Int && kind <= reflect.Int64:
		return "a whole number"
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		return "a whole number from 0"
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "a number"
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "a string"
	case kind == reflect.Map || kind == reflect.Struct:
		return "an object"
	default:
		return "an array"
	}
}
