package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch/internal/linux/pressure"
	"hutch/internal/settings"
	"hutch/internal/text"
)

// packagedConfig is the configuration file of the packaged service, whose unit names it. `hutch serve` reads only
// a file that is named.
const packagedConfig = "/etc/hutch/hutch.yaml"

// serverSettings are the flags of `hutch serve`, from all their sources.
var serverSettings = settings.Program{
	Prefix: "HUTCH_",
	// HUTCH_SECRET_KEY has the key itself, so the variable for this flag has another name.
	Variables: map[string]string{"secret-key": "HUTCH_SECRET_KEY_FILE"},
	Not:       []string{"config", "server"}, // the file cannot name itself; --server is for clients
	Getenv:    os.Getenv,
	Meant:     similarName,
}

// configure sets flags that are missing on the command line, from the environment and the configuration file.
func (fl *serveFlags) configure(f *pflag.FlagSet) (err error) {
	file := cmp.Or(fl.config, os.Getenv(serverSettings.Variable("config")))
	if fl.origins, err = serverSettings.Apply(f, file); err != nil {
		return usageError{err}
	}
	if fl.origins["max-memory"] == (settings.Origin{}) { // computed only here, because other commands do not need it
		fl.Sandboxes.MaxLimits.Memory = int(pressure.Total() >> 20)
	}
	if fl.origins["secret-key"].File != "" && os.Getenv("HUTCH_SECRET_KEY") != "" {
		fl.Secrets.KeyFile = "" // the key in the environment overrides the file
	}
	return nil
}

func newConfig(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Check and show the configuration of the server",
		Long: `Check and show the configuration that hutch serve would start with: its flags,
as the environment and a configuration file set them.

Each flag of hutch serve is a setting. In the file, its key is the name of the
flag; in the environment, it is HUTCH_ and that name in upper case with _ for -:

  flag                     file                     environment
  --pool 32                pool: 32                 HUTCH_POOL=32
  --sleep-after 1h         sleep-after: 1h          HUTCH_SLEEP_AFTER=1h
  --allow-host a.example   allow-host: [a.example]  HUTCH_ALLOW_HOST=a.example

--secret-key is HUTCH_SECRET_KEY_FILE, as HUTCH_SECRET_KEY is the key itself.

FILE is $HUTCH_CONFIG if it is left out, or else ` + packagedConfig + `, which
the packaged service starts with, if it exists.`,
	}
	c.AddCommand(newConfigCheck(h, std), newConfigShow(h, std))
	return c
}

func newConfigCheck(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "check [FILE]", Short: "Say what is wrong with the configuration; exit code 2 if anything is",
		Example: "  hutch config check hutch.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, list, err := h.settings(args)
			if err != nil {
				return err
			}
			n := 0
			for _, s := range list {
				if s.origin != (settings.Origin{}) {
					n++
				}
			}
			if asJSON {
				return writeJSON(std.out, done{"ok": true, "file": file, "settings": n})
			}
			fmt.Fprintf(std.out, "ok: %s set %d of %d settings\n", from(file), n, len(list))
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// from names the sources of a configuration for people.
func from(file string) string {
	if file == "" {
		return "no file, and the environment,"
	}
	return text.Line(file) + ", and the environment,"
}

func newConfigShow(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show [FILE]", Short: "Show every setting, and where its value is from",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, list, err := h.settings(args)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "SETTING\tVALUE\tSOURCE", func(s setting) []any {
				return []any{s.Name, s.shown, s.origin}
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// setting is one flag of the server, and where its value is from.
type setting struct {
	Name     string          `json:"name"`
	Value    json.RawMessage `json:"value"`
	Source   string          `json:"source"` // flag, environment, file or default
	File     string          `json:"file,omitempty"`
	Line     int             `json:"line,omitempty"`
	Variable string          `json:"variable"` // variable that can set it
	shown    string          // the value, for people
	origin   settings.Origin
}

func newSetting(f *pflag.Flag, o settings.Origin) setting {
	return setting{f.Name, jsonValue(f), o.Kind(), o.File, o.Line, serverSettings.Variable(f.Name), valueText(f), o}
}

// settings returns the settings with which a server would start.
func (h *home) settings(args []string) (file string, list []setting, err error) {
	var fl serveFlags
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fl.define(f)
	f.StringVar(&h.dir, "data", h.dir, "data folder")
	if fl.config, err = configFile(args); err != nil {
		return "", nil, err
	}
	if err = fl.configure(f); err == nil {
		err = fl.complete()
	}
	if err != nil {
		return "", nil, usageError{fl.explainOrigin(err)}
	}
	if h.dir, err = h.path(); err != nil {
		return "", nil, err
	}
	f.VisitAll(func(flag *pflag.Flag) {
		if serverSettings.Is(flag) {
			list = append(list, newSetting(flag, fl.origins[flag.Name]))
		}
	})
	return fl.config, list, nil
}

// configFile returns the path of the configuration file: from the arguments, or else from the environment, or else that
// of the package.
func configFile(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if file := os.Getenv(serverSettings.Variable("config")); file != "" {
		return file, nil
	}
	_, err := os.Stat(packagedConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return packagedConfig, err
}

var flagName = regexp.MustCompile(`--([a-z][a-z-]+)`)

// explainOrigin adds the sources of the values to an error about flags.
func (fl *serveFlags) explainOrigin(err error) error {
	var from []string
	for _, m := range flagName.FindAllStringSubmatch(err.Error(), -1) {
		if o := fl.origins[m[1]]; o != (settings.Origin{}) && !o.Flag {
			from = append(from, fmt.Sprintf("%s is from %s", m[1], o))
		}
	}
	if len(from) == 0 {
		return err
	}
	return usageError{fmt.Errorf("%w (%s)", err, strings.Join(from, ", "))}
}

var namedDefault = regexp.MustCompile(`\(default:? ([^()]*)\)$`)

// urlPassword matches the password of a URL, and the characters around it.
var urlPassword = regexp.MustCompile(`(://[^/@\s:]*:)[^/@\s]+@`)

// withoutPassword hides the password of each URL in a text, such as that of a proxy.
func withoutPassword(text string) string { return urlPassword.ReplaceAllString(text, "${1}xxxxx@") }

// valueText returns the value of a flag in the form of the command line, or the help's text for its default.
func valueText(f *pflag.Flag) string {
	text := withoutPassword(f.Value.String())
	switch list, ok := f.Value.(pflag.SliceValue); {
	case ok:
		text = withoutPassword(strings.Join(list.GetSlice(), " "))
	case f.Value.Type() == "stringToString":
		text = strings.Trim(text, "[]")
	}
	m := namedDefault.FindStringSubmatch(f.Usage)
	if m != nil && !f.Changed && f.NoOptDefVal == "" && (text == "" || text == "0") {
		return "(" + m[1] + ")"
	}
	return text
}

// jsonValue returns the value of a flag in its own type.
func jsonValue(f *pflag.Flag) json.RawMessage {
	var v any = withoutPassword(f.Value.String())
	switch list, ok := f.Value.(pflag.SliceValue); {
	case ok:
		texts := append([]string{}, list.GetSlice()...) // never null
		for i, text := range texts {
			texts[i] = withoutPassword(text)
		}
		v = texts
	case f.Value.Type() == "stringToString":
		one := pflag.NewFlagSet("", pflag.ContinueOnError)
		one.AddFlag(f)
		v, _ = one.GetStringToString(f.Name) // the type is known
	case slices.Contains([]string{"bool", "int", "int64", "float64"}, f.Value.Type()):
		return json.RawMessage(f.Value.String())
	}
	b, _ := json.Marshal(v) // texts, lists and maps can always be encoded
	return b
}
