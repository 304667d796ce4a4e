package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"hutch/internal/settings"
)

// reserved are variables that mean something else than the value of a flag.
var reserved = []string{"HUTCH_URL", "HUTCH_TOKEN", "HUTCH_SECRET_KEY", "HUTCH_GIT_PASSWORD", "HUTCH_CONFIG", "HUTCH_SERVER"}

// samples has a value for each type of flag, other than its default: in the file, for the variable, and as the flag
// shows it.
var samples = map[string][3]string{
	"bool": {"true", "true", "true"}, "int": {"7", "7", "7"}, "int64": {"7", "7", "7"}, "float64": {"0.5", "0.5", "0.5"},
	"time": {"3d", "3d", "3d"}, "string": {"x.example", "x.example", "x.example"},
	"stringSlice": {"[a, b]", "a,b", "[a,b]"}, "stringArray": {"[a, b]", "a b", "[a,b]"}, "stringToString": {"{cpu: 2}", "cpu=2", "[cpu=2]"},
}

// serveCommandFlags are all flags of hutch serve, with those of every command.
func serveCommandFlags(t *testing.T) *pflag.FlagSet {
	t.Helper()
	c, _, err := root().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	c.InheritedFlags()
	return c.Flags()
}

// Every flag of hutch serve is a setting. The key in the file is the flag's name, and each flag has its own variable.
func TestEveryFlagIsASetting(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	serveCommandFlags(t).VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"help", "config", "server"}, f.Name) {
			return
		}
		variable := serverSettings.Variable(f.Name)
		if slices.Contains(reserved, variable) || seen[variable] != "" {
			t.Errorf("--%s would be $%s, which is taken by %q: give it another name in serverSettings", f.Name, variable, seen[variable])
		}
		seen[variable] = f.Name
		s, ok := samples[f.Value.Type()]
		if !ok {
			t.Fatalf("--%s is of type %s: add a sample, and check that package settings knows the type", f.Name, f.Value.Type())
		}
		fromFile, origin := sole(t, f.Name, nil, fmt.Sprintf("# a comment\n%s: %s\n", f.Name, s[0]))
		if fromFile != s[2] || origin.Line != 2 {
			t.Errorf("%s: %s in the file gives %s from %s", f.Name, s[0], fromFile, origin)
		}
		fromVariable, origin := sole(t, f.Name, map[string]string{variable: s[1]}, fmt.Sprintf("%s: %s\n", f.Name, s[0]))
		if fromVariable != s[2] || origin.Variable != variable {
			t.Errorf("$%s=%s gives %s from %s", variable, s[1], fromVariable, origin)
		}
	})
	if len(seen) < 45 {
		t.Errorf("only %d flags were found", len(seen))
	}
}

// The output of `hutch config show` has no password of a proxy or a mirror.
func TestConfigShowsNoPassword(t *testing.T) {
	t.Parallel()
	f := serveCommandFlags(t)
	for flag, value := range map[string]string{
		"registry-proxy": "http://me:pass-w0rd:1@proxy.example:3128", "registry-mirror": "docker.io=https://me:pass-w0rd@mirror.example", "registry-private": "a:1,b@c",
	} {
		if err := f.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	for flag, want := range map[string]string{
		"registry-proxy": "http://me:xxxxx@proxy.example:3128", "registry-mirror": "docker.io=https://me:xxxxx@mirror.example", "registry-private": "a:1 b@c",
	} {
		if got := valueText(f.Lookup(flag)); got != want {
			t.Errorf("--%s is shown as %s, not %s", flag, got, want)
		}
		if got := string(jsonValue(f.Lookup(flag))); strings.Contains(got, "pass-w0rd") || !strings.Contains(got, strings.Fields(want)[0]) {
			t.Errorf("--%s is %s in JSON", flag, got)
		}
	}
}

// sole sets one flag by an environment and a file.
func sole(t *testing.T, name string, env map[string]string, file string) (string, settings.Origin) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hutch.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serverSettings
	p.Getenv = func(name string) string { return env[name] }
	f := serveCommandFlags(t)
	origins, err := p.Apply(f, path)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return f.Lookup(name).Value.String(), origins[name]
}

// The server accepts the example file in the documentation.
func TestConfigurationOfDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	file, _, found := strings.Cut(rest, "```")
	path := filepath.Join(t.TempDir(), "hutch.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil || !found {
		t.Fatal("there is no example", err)
	}
	_, list, err := (&home{}).settings([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list, func(s setting) bool { return s.Name == "max-memory" && s.File == path }) {
		t.Errorf("the example sets no ceiling of memory: %+v", list)
	}
}
