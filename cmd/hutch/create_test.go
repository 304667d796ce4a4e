package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"hutch"
)

// createFields are the fields of a create, with the flags that set each of them, or the reason why there is no flag.
var createFields = map[string]struct{ args, why string }{
	"sandboxId":                     {args: "name"},
	"normalizeId":                   {why: "an id in the wrong form is answered with the right one, so that the person knows it"},
	"image":                         {args: "--image python:3.12-slim"},
	"pull":                          {args: "--pull always"},
	"runtime":                       {args: "--runtime native"},
	"instanceType":                  {args: "--type basic"},
	"user":                          {args: "--user node"},
	"snapshot":                      {args: "--snapshot s"},
	"template":                      {args: "--template t"},
	"filesOnly":                     {args: "--files-only"},
	"env":                           {args: "--env A=b"},
	"secrets":                       {args: "--secret A"},
	"volumes":                       {args: "--volume data:/workspace/data"},
	"network.mode":                  {args: "--network open"},
	"network.allow":                 {args: "--allow example.com"},
	"network.block":                 {args: "--block 203.0.113.7"},
	"network.links":                 {args: "--link db=other"},
	"network.headers":               {args: "--header api.example.com:Authorization"},
	"network.proxy.address":         {args: "--proxy proxy.example.com:1080"},
	"network.proxy.username":        {args: "--proxy ann@proxy.example.com:1080"},
	"network.proxy.password":        {args: "--proxy ann@proxy.example.com:1080"},
	"network.limits.connections":    {args: "--network-connections 5"},
	"network.limits.rate":           {args: "--network-rate 5"},
	"network.limits.bytesPerSecond": {args: "--network-bandwidth 5m"},
	"network.limits.totalBytes":     {args: "--network-total 5g"},
	"limits.cpu":                    {args: "--cpu 2"},
	"limits.memory":                 {args: "--memory 1g"},
	"limits.disk":                   {args: "--disk 2g"},
	"limits.pids":                   {args: "--pids 100"},
	"limits.processes":              {args: "--processes 3"},
	"keepAlive":                     {args: "--keep-alive"},
	"sleepAfter":                    {args: "--sleep-after 1h"},
	"onIdle":                        {args: "--on-idle stop"},
	"timeout":                       {args: "--lifetime 30d"},
	"labels":                        {args: "--label team=red"},
	"nodeSelector":                  {args: "--node-selector zone=b"},
	"tolerations":                   {args: "--toleration gpu=yes"},
}

// The command line has a flag for every field of a create, or the table says why not.
func TestCreateTakesEveryField(t *testing.T) {
	t.Parallel()
	known := fieldsOf("", reflect.TypeFor[hutch.CreateRequest]())
	for _, path := range known {
		field, ok := createFields[path]
		switch {
		case !ok:
			t.Errorf("hutch create has no flag for the field %s of a create: add one and a line in createFields, or a line that says why not", path)
		case field.why == "":
			if req := createdBy(t, field.args); !has(req, strings.Split(path, ".")) {
				t.Errorf("hutch create %s does not set %s: it asks for %v", field.args, path, req)
			}
		}
	}
	if len(known) != len(createFields) {
		t.Errorf("createFields has %d fields, and a create %d", len(createFields), len(known))
	}
}

// fieldsOf returns the paths of the JSON fields of a struct. In place of a field that is a struct, it returns that
// struct's fields.
func fieldsOf(above string, of reflect.Type) (paths []string) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			paths = append(paths, fieldsOf(above+name+".", inner)...)
		} else {
			paths = append(paths, above+name)
		}
	}
	return paths
}

// createdBy returns the JSON of the request for the arguments of hutch create.
func createdBy(t *testing.T, args string) (req map[string]any) {
	t.Helper()
	var f createFlags
	c := &cobra.Command{}
	f.flags(c)
	if err := c.ParseFlags(strings.Fields(args)); err != nil {
		t.Errorf("hutch create %s: %v", args, err)
		return nil
	}
	made, err := f.request(t.Context(), streams{in: pipedIn(t, "a-value\n")}, c.Flags().Args())
	if err != nil {
		t.Errorf("hutch create %s: %v", args, err)
	}
	text, err := json.Marshal(made)
	if err == nil {
		err = json.Unmarshal(text, &req)
	}
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func has(value any, path []string) bool {
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return false
		}
		value = object[name]
	}
	return value != nil
}

// pipedIn returns a standard input with a text.
func pipedIn(t *testing.T, text string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err == nil {
		_, err = w.WriteString(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { r.Close() })
	return r
}

func TestHiddenValuesAreLines(t *testing.T) {
	t.Parallel()
	h := hiddenFlags{headers: []string{"a.example:X-One", "b.example:X-Two"}, proxy: "ann@proxy.example.com:1080"}
	if err := h.read(t.Context(), streams{in: pipedIn(t, "first\r\nsecond\nthird\n")}); err != nil {
		t.Fatal(err)
	}
	if len(h.values) != 2 || h.values[0] != "first" || h.values[1] != "second" || h.password != "third" {
		t.Errorf("the values are %q and the password is %q", []string{string(h.values[0]), string(h.values[1])}, string(h.password))
	}
	err := h.read(t.Context(), streams{in: pipedIn(t, "first\nsecond\n")})
	if err == nil || !strings.Contains(err.Error(), "3 values are needed, one on each line, and the standard input has 2") || strings.Contains(err.Error(), "first") {
		t.Errorf("two lines for three values: %v", err)
	}
	last := strings.Repeat("x", 40<<10) // longer than a single secret can be
	if values, err := readLines(strings.NewReader("first\n"+last+"\n"), []string{"a", "b"}); err != nil || values[1] != last {
		t.Errorf("the last of two values is cut: %v", err)
	}
	if _, err := readLines(strings.NewReader(strings.Repeat("x\n", hutch.MaxSecret+1)), []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("endless input: %v", err)
	}
	h = hiddenFlags{proxy: "ann@"}
	if err := h.read(t.Context(), streams{in: pipedIn(t, "third\n")}); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("a proxy without an address: %v", err)
	}
}
