package coding

import (
	"bytes"
	"embed"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"hutch"
	"hutch/internal/yamlfault"
)

// Definition describes how to run the command-line program of a coding agent without a person.
type Definition struct {
	Name string `yaml:"name"`
	// Image is the template or image with the program. A request can name another.
	Image string `yaml:"image"`
	// Command is a line for bash that runs in the repository, with the prompt as its standard input.
	Command string `yaml:"command"`
	// Resume is the line for every prompt after the first. Default: Command; the agent then does not remember the
	// earlier prompts.
	Resume string `yaml:"resume,omitempty"`
	// Format is what Command prints: claude, codex, gemini, opencode, or text, which is the default.
	Format string `yaml:"format,omitempty"`
	// Keys are the credentials that the agent needs for its model. They are never in the sandbox.
	Keys []Key `yaml:"keys,omitempty"`
	// Env is for all programs in the sandbox.
	Env map[string]string `yaml:"env,omitempty"`
	// Allow are rules for the network, in addition to the hosts of the keys.
	Allow []string `yaml:"allow,omitempty"`
	// Memory and Disk are in MiB, for a sandbox of an image. A sandbox of a template has the limits of the template.
	Memory int `yaml:"memory,omitempty"`
	Disk   int `yaml:"disk,omitempty"`
}

// Key is a credential that the server adds to the agent's requests for one host.
type Key struct {
	Secret string `yaml:"secret"` // the name of a brokered secret
	// Variable is the environment variable in which the program expects the key. Default: Secret.
	Variable string `yaml:"variable,omitempty"`
	// Host is the host to which the program sends the key.
	Host string `yaml:"host"`
	// BaseURL is the environment variable that points the program to another host. It is set if the secret is brokered
	// for a host other than Host, such as your own gateway.
	BaseURL string `yaml:"baseURL,omitempty"`
}

// use returns the secret as a request names it: SECRET or VARIABLE=SECRET.
func (k Key) use() string {
	if k.Variable == "" {
		return k.Secret
	}
	return k.Variable + "=" + k.Secret
}

// maxDefinition bounds the text of a definition, in bytes.
const maxDefinition = 64 << 10

//go:embed agents/*.yaml
var shipped embed.FS

// Names returns the agents that Hutch knows without a file, in order.
func Names() (names []string) {
	entries, _ := shipped.ReadDir("agents")
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Named returns the definition of an agent that Hutch knows.
func Named(name string) (Definition, error) {
	if !slices.Contains(Names(), name) {
		return Definition{}, hutch.Errorf(hutch.NotFound, "there is no agent %.80q: use %s, or give a definition of your own", name, strings.Join(Names(), ", ")).Naming(hutch.AboutField, "agent")
	}
	text, err := shipped.ReadFile(path.Join("agents", name+".yaml"))
	if err != nil {
		return Definition{}, err
	}
	return ParseDefinition(text)
}

// ParseDefinition reads a definition in YAML. An unknown field is an error.
func ParseDefinition(text []byte) (d Definition, err error) {
	if len(text) > maxDefinition {
		return d, hutch.Errorf(hutch.Invalid, "the definition of the agent has %d bytes, over the limit of %d: move long scripts into the image", len(text), maxDefinition)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return d, hutch.Errorf(hutch.Invalid, "the definition of the agent cannot be read: %.500s", yamlfault.Words(err, map[string]string{"coding.Definition": "definition", "coding.Key": "key"}))
	}
	return d, d.check()
}

func (d Definition) check() error {
	field := func(name, what string) error {
		return hutch.Errorf(hutch.Invalid, "the definition of the agent: %s %s", name, what).Naming(hutch.AboutField, name)
	}
	if err := hutch.CheckID(d.Name); err != nil {
		return field("name", "is missing or not of the form of an id, such as my-agent")
	}
	switch {
	case strings.TrimSpace(d.Command) == "":
		return field("command", "is missing: write the line that runs the agent with the prompt as its standard input")
	case len(d.Command)+len(d.Resume) > maxDefinition || strings.ContainsRune(d.Command+d.Resume, 0):
		return field("command", "is too long, or holds a zero byte")
	case formats[d.format()] == nil:
		return field("format", "is unknown: use claude, codex, gemini, opencode or text")
	case d.Memory < 0 || d.Disk < 0:
		return field("memory", "or disk is negative: give MiB")
	}
	for _, k := range d.Keys {
		if err := k.check(); err != nil {
			return err
		}
	}
	_, err := hutch.Network{Allow: hutch.Rules(d.Allow...)}.Canonical()
	return err
}

func (k Key) check() error {
	if _, _, err := hutch.ParseSecretUse(k.use()); err != nil {
		return err
	}
	if _, _, err := hutch.ParseBrokeredHost(k.Host); err != nil {
		return err
	}
	if k.BaseURL != "" {
		return hutch.CheckSecretName(k.BaseURL) // the name of a secret and that of a variable have the same form
	}
	return nil
}

func (d Definition) format() string {
	if d.Format == "" {
		return "text"
	}
	return d.Format
}
