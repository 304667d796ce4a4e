package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
)

// patience is the most time for a call, and for all attempts of a step that is repeated.
const patience = 30 * time.Second

// file is a file of cases: sdk/contract/README.md specifies it.
type file struct {
	Name, About string
	Needs       []string // programs
	Cases       []struct {
		Name           string
		Steps, Finally []step
	}
}

type step struct {
	Call       string
	Args       map[string]any
	Want       json.RawMessage
	Fails      map[string]any
	Save       map[string]string
	Eventually bool
	StopAt     string
	During     []step
	WantEvents []any
}

func cases(t *testing.T) (files []file) {
	t.Helper()
	names, err := filepath.Glob("../../sdk/contract/cases/*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no cases: %v", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		var f file
		if err := d.Decode(&f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files = append(files, f)
	}
	return files
}

// TestGoClient runs the cases with the Go client.
func TestGoClient(t *testing.T) {
	s := serve(t)
	t.Run("files", func(t *testing.T) {
		for _, f := range cases(t) {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				sb, err := s.Open(t.Context(), hutch.CreateRequest{})
				if err != nil {
					t.Fatal(err)
				}
				needPrograms(t, sb, f.Needs)
				for _, c := range f.Cases {
					t.Run(c.Name, func(t *testing.T) {
						r := &runner{calls: calls{s.Client}, known: map[string]any{"sandbox": sb.ID, "unique": unique()}}
						defer func() {
							for _, st := range c.Finally {
								r.step(t, st)
							}
						}()
						for i, st := range c.Steps {
							if err := r.step(t, st); err != nil {
								t.Fatalf("step %d, %s: %v", i+1, st.Call, err)
							}
						}
					})
				}
			})
		}
	})
}

// needPrograms skips the test if a sandbox lacks programs. In CI, it fails the test.
func needPrograms(t *testing.T, sb *client.Sandbox, programs []string) {
	t.Helper()
	for _, program := range programs {
		res, err := sb.Exec(t.Context(), hutch.ExecRequest{Command: "command -v " + program}, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case !res.Success() && os.Getenv("CI") != "":
			t.Fatalf("CI needs %s", program)
		case !res.Success():
			t.Skipf("there is no %s", program)
		}
	}
}

// unique returns a value for the variable "unique".
func unique() string { return "u" + strings.ReplaceAll(hutch.NewID("x"), "-", "")[:7] }

type runner struct {
	calls calls
	known map[string]any // variables
}

// step runs a step, again if it asks for that.
func (r *runner) step(t *testing.T, st step) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := r.once(t, st)
		if err == nil || !st.Eventually || time.Now().After(end) {
			return err
		}
	}
}

func (r *runner) once(t *testing.T, st step) error {
	ctx, cancel := bounded(t)
	defer cancel()
	args, _ := fill(st.Args, r.known).(map[string]any)
	a := arguments{args: args, stopAt: st.StopAt}
	if st.Call == "watchFiles" {
		a.during = func() error {
			for _, inner := range st.During {
				if err := r.step(t, inner); err != nil {
					return fmt.Errorf("during the watch, %s: %w", inner.Call, err)
				}
			}
			return nil
		}
		a.events, _ = fill(st.WantEvents, r.known).([]any)
	}
	call, ok := table[st.Call]
	if !ok {
		return fmt.Errorf("there is no call %q", st.Call)
	}
	got, err := try(call, r.calls, ctx, a)
	if st.Fails != nil {
		return failed(fill(st.Fails, r.known).(map[string]any), got, err)
	}
	if err != nil {
		return err
	}
	return r.look(st, got)
}

// try makes a call. If the arguments are not a valid request, the result is the client's error.
func try(f call, c calls, ctx context.Context, a arguments) (got any, err error) {
	defer func() {
		if e, ok := recover().(*hutch.Error); ok {
			err = e
		}
	}()
	return f(c, ctx, a)
}

// failed returns nil if err is the expected error.
func failed(want map[string]any, got any, err error) error {
	if err == nil {
		return fmt.Errorf("it gave %.300v, and should fail with %v", got, want)
	}
	if string(hutch.KindOf(err)) != want["kind"] {
		return fmt.Errorf("it failed with %s: %w; want %v", hutch.KindOf(err), err, want)
	}
	if detail, ok := want["detail"]; ok {
		return match(detail, err.Error(), "the message")
	}
	return nil
}

// look compares a result with the expected one, and saves variables.
func (r *runner) look(st step, result any) error {
	var got any
	b, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil {
		return err
	}
	if st.Want != nil {
		var want any
		if err := json.Unmarshal(st.Want, &want); err != nil {
			return err
		}
		if err := match(fill(want, r.known), got, "the result"); err != nil {
			return err
		}
	}
	for name, path := range st.Save {
		r.known[name] = at(got, path)
	}
	return nil
}

// at returns the part of a value that a path leads to.
func at(v any, path string) any {
	for _, part := range strings.FieldsFunc(path, func(c rune) bool { return c == '.' }) {
		switch of := v.(type) {
		case map[string]any:
			v = of[part]
		case []any:
			i, _ := strconv.Atoi(part)
			v = of[i]
		}
	}
	return v
}

var variable = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fill replaces variables.
func fill(v any, known map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		made := map[string]any{}
		for name, value := range v {
			made[name] = fill(value, known)
		}
		return made
	case []any:
		made := make([]any, len(v))
		for i, value := range v {
			made[i] = fill(value, known)
		}
		return made
	case string:
		if m := variable.FindStringSubmatch(v); m != nil && m[0] == v {
			return known[m[1]]
		}
		return variable.ReplaceAllStringFunc(v, func(name string) string { return fmt.Sprint(known[name[2:len(name)-2]]) })
	}
	return v
}

// match returns an error unless got is as the matcher says.
func match(want, got any, where string) error {
	switch want := want.(type) {
	case map[string]any:
		if len(want) == 1 {
			for name, arg := range want {
				if strings.HasPrefix(name, "$") {
					return special(name, arg, got, where)
				}
			}
		}
		fields, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %.300v, and should be %v", where, got, want)
		}
		for name, value := range want {
			if err := match(value, fields[name], where+"."+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return fmt.Errorf("%s is %.300v, and should have %d items: %v", where, got, len(want), want)
		}
		for i, value := range want {
			if err := match(value, items[i], fmt.Sprintf("%s.%d", where, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("%s is %.300q, and should be %q", where, fmt.Sprint(got), fmt.Sprint(want))
	}
	return nil
}

// special compares as match does, for a matcher with a name.
func special(name string, want, got any, where string) error {
	text, isText := got.(string)
	list, isList := got.([]any)
	number, isNumber := got.(float64)
	ok := false
	switch name {
	case "$match":
		re, err := regexp.Compile(want.(string))
		if err != nil {
			return err
		}
		ok = isText && re.MatchString(text)
	case "$contains":
		if part, _ := want.(string); isText {
			ok = part != "" && strings.Contains(text, part)
		}
		for _, item := range list {
			ok = ok || match(want, item, "") == nil
		}
	case "$oneOf":
		for _, one := range want.([]any) {
			ok = ok || match(one, got, "") == nil
		}
	case "$not":
		ok = match(want, got, "") != nil
	case "$length":
		ok = isText && float64(len([]rune(text))) == want || isList && float64(len(list)) == want
	case "$atLeast":
		ok = isNumber && number >= want.(float64)
	case "$atMost":
		ok = isNumber && number <= want.(float64)
	case "$type":
		ok = typeOf(got) == want
	default:
		return fmt.Errorf("there is no matcher %s", name)
	}
	if !ok {
		return fmt.Errorf("%s is %.300q, which is not %s %v", where, fmt.Sprint(got), name, want)
	}
	return nil
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "array"
	}
	return "object"
}
