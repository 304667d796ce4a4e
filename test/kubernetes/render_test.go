// Package kubernetes tests deploy/kubernetes: what the manifests promise, and, with the tag kubernetes, what they do in a real cluster.
package kubernetes

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

const (
	folder = "../../deploy/kubernetes"
	chart  = folder + "/chart"
)

var update = flag.Bool("update", false, "write the manifests")

type values = map[string]any

// render renders the chart. Helm's templates are Go's with more functions; the chart uses few of them, and `make
// test-kubernetes` compares the result with Helm's own.
func render(t testing.TB, release, namespace string, over ...values) string {
	t.Helper()
	all := readYAML(t, chart+"/values.yaml")
	for _, o := range over {
		merge(all, o)
	}
	set := template.New("").Option("missingkey=error")
	set.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := set.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml":  toYAML,
		"nindent": func(n int, text string) string { return "\n" + indent(n, text) },
		"quote":   func(v string) string { return strconv.Quote(v) },
		"fail":    func(text string) (string, error) { return "", errors.New(text) },
	})
	files, err := filepath.Glob(chart + "/templates/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	for _, file := range files {
		if _, err := set.New(filepath.Base(file)).Parse(string(read(t, file))); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "_") {
			continue
		}
		var b strings.Builder
		data := values{"Values": all, "Release": values{"Name": release, "Namespace": namespace}, "Files": chartFiles{t}}
		if err := set.ExecuteTemplate(&b, filepath.Base(file), data); err != nil {
			t.Fatal(err)
		}
		if text := strings.TrimSpace(b.String()); text != "" {
			out.WriteString("---\n" + text + "\n")
		}
	}
	return out.String()
}

type chartFiles struct{ t testing.TB }

func (f chartFiles) Get(name string) string { return string(read(f.t, filepath.Join(chart, name))) }

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readYAML(t testing.TB, file string) (v values) {
	t.Helper()
	if err := yaml.Unmarshal(read(t, file), &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

func merge(into, from values) {
	for key, v := range from {
		if m, ok := v.(values); ok {
			if old, ok := into[key].(values); ok {
				merge(old, m)
				continue
			}
		}
		into[key] = v
	}
}

func toYAML(v any) (string, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	err := errors.Join(enc.Encode(v), enc.Close())
	return strings.TrimSuffix(b.String(), "\n"), err
}

func indent(n int, text string) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

// documents returns the objects of a manifest.
func documents(t testing.TB, manifest string) (all []values) {
	t.Helper()
	for dec := yaml.NewDecoder(strings.NewReader(manifest)); ; {
		var v values
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, manifest)
		}
		if v != nil {
			all = append(all, v)
		}
	}
}

// presets returns the values of each preset.
func presets(t testing.TB) map[string]values {
	t.Helper()
	all := map[string]values{"unprivileged": {}}
	files, err := filepath.Glob(chart + "/presets/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("the presets are %v, %v", files, err)
	}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = readYAML(t, file)
	}
	return all
}

const generated = "# Made of deploy/kubernetes/chart by `go test ./test/kubernetes -run Rendered -update`: change that.\n"

// TestRendered: the plain manifests are what the chart says.
func TestRendered(t *testing.T) {
	all := presets(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		file := folder + "/manifests/" + name + ".yaml"
		text := generated + render(t, "hutch", "hutch", all[name])
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if string(read(t, file)) != text {
			t.Errorf("%s is not what the chart says: run `go test ./test/kubernetes -run Rendered -update`", file)
		}
	}
	file := folder + "/manifests/seccomp.yaml"
	text := generated + only(render(t, "hutch", "hutch", values{"seccomp": values{"install": true}}), "hutch-seccomp")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if string(read(t, file)) != text {
		t.Errorf("%s is not what the chart says: run `go test ./test/kubernetes -run Rendered -update`", file)
	}
}

// only keeps the documents of one name.
func only(manifest, name string) string {
	var kept strings.Builder
	for _, doc := range strings.Split(manifest, "---\n") {
		if strings.Contains(doc, "\n  name: "+name+"\n") {
			kept.WriteString("---\n" + doc)
		}
	}
	return kept.String()
}
