package verb_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/verb"
)

// beside are the verbs that are not methods of interfaces of package hutch.
var beside = []string{"Audit", "Metrics"}

// Every method has one row, and every row is a method.
func TestTableIsTheInterfaces(t *testing.T) {
	t.Parallel()
	var methods, rows []string
	for _, i := range []reflect.Type{
		reflect.TypeFor[hutch.Service](), reflect.TypeFor[hutch.Sharing](), reflect.TypeFor[hutch.Tokens](), reflect.TypeFor[hutch.Accounts](),
		reflect.TypeFor[hutch.Secrets](), reflect.TypeFor[hutch.Backups](), reflect.TypeFor[hutch.Images](), reflect.TypeFor[hutch.Volumes](), reflect.TypeFor[hutch.Pools](), reflect.TypeFor[hutch.Checkpoints](), reflect.TypeFor[hutch.Examiner](), reflect.TypeFor[hutch.Owners](), reflect.TypeFor[hutch.Nodes](), reflect.TypeFor[hutch.Timelines](), reflect.TypeFor[hutch.Histories](), reflect.TypeFor[hutch.Questions](), reflect.TypeFor[hutch.SSH](),
	} {
		for m := range i.Methods() {
			methods = append(methods, m.Name)
		}
	}
	for _, v := range verb.All() {
		rows = append(rows, v.Name)
	}
	methods = append(methods, beside...)
	slices.Sort(methods)
	slices.Sort(rows)
	if !slices.Equal(methods, rows) {
		t.Errorf("the rows are\n%q\nand the methods\n%q", rows, methods)
	}
}

// Each row says who may call the verb, and its fields are consistent.
func TestRows(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, v := range verb.All() {
		if len(v.Scopes) == 0 {
			t.Errorf("%s has no scopes", v.Name)
		}
		if v.Access != "" && v.About != verb.Sandbox {
			t.Errorf("%s has an access, and is about no sandbox that could be shared", v.Name)
		}
		if v.Looks && (v.Frees || v.Access == hutch.WriteAccess) {
			t.Errorf("%s looks, and changes something", v.Name)
		}
		for _, route := range v.Routes {
			if other, twice := seen[route]; twice {
				t.Errorf("%s is the route of %s and of %s", route, other, v.Name)
			}
			seen[route] = v.Name
			if method, path, ok := strings.Cut(route, " "); !ok || strings.ToUpper(method) != method || !strings.HasPrefix(path, "/v1/") {
				t.Errorf("%s: %q is not a route", v.Name, route)
			}
		}
	}
}
