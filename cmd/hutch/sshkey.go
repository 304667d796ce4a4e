package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/text"
)

func newSSHKey(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "ssh-key", Short: "Add, list and delete the SSH keys of your token",
		Long: `Add, list and delete public SSH keys. A key opens by SSH what the token opens that
adds it, and nothing when that token has ended. hutch ssh-config makes a key of its
own, so keys of yours are for clients without the program hutch.
` + remoteHelp,
		Example: "  hutch ssh-key add ~/.ssh/id_ed25519.pub\n  hutch ssh-key ls",
	}
	c.AddCommand(newSSHKeyAdd(h, std), newSSHKeyList(h, std), newSSHKeyDelete(h, std), newSSHKeySign(h, std))
	return c
}

func newSSHKeyAdd(h *home, std streams) *cobra.Command {
	var req hutch.SSHKeyRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "add [FILE]", Short: "Add a public key: ~/.ssh/id_ed25519.pub, another file, or - for the standard input", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if req.Key, err = publicKey(args, std); err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			key, err := svc.AddSSHKey(c.Context(), req)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, key)
			}
			return writeSSHKeys(std.out, []hutch.SSHKey{key})
		},
	}
	c.Flags().StringVar(&req.Name, "name", "", "what to call it (default: its comment)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// publicKey reads the public key that the arguments name.
func publicKey(args []string, std streams) (string, error) {
	if len(args) > 0 && args[0] == "-" {
		b, err := io.ReadAll(io.LimitReader(std.in, hutch.MaxSSHKey+1))
		return string(b), err
	}
	if len(args) > 0 {
		b, err := os.ReadFile(args[0])
		return string(b), err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(user, ".ssh/id_ed25519.pub")
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usageError{fmt.Errorf("there is no key %s: name the file of another, or make one with ssh-keygen -t ed25519", path)}
	}
	return string(b), nil
}

func newSSHKeyList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List your keys, oldest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			svc, err := h.dial()
			if err != nil {
				return err
			}
			list, err := svc.SSHKeys(c.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, list)
			}
			return writeSSHKeys(std.out, list)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func writeSSHKeys(w io.Writer, list []hutch.SSHKey) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tNAME\tTYPE\tFINGERPRINT\tADDED")
	for _, k := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", k.ID, cmp.Or(text.Line(k.Name), "-"), k.Type, k.Fingerprint, k.CreatedAt.Local().Format(time.DateTime))
	}
	return t.Flush()
}

func newSSHKeyDelete(h *home, std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "rm KEY", Aliases: []string{"delete"}, Short: "Delete a key, by its id, name or fingerprint, and end its connections", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			svc, err := h.dial()
			if err != nil {
				return err
			}
			id, err := findSSHKey(c.Context(), svc, args[0])
			if err != nil {
				return err
			}
			return svc.DeleteSSHKey(c.Context(), id)
		},
	}, std, func(args []string) done { return done{"key": args[0]} })
}

// findSSHKey returns the id of the one key with a name or a fingerprint. Any other text is an id.
func findSSHKey(ctx context.Context, svc hutch.SSH, key string) (string, error) {
	list, err := svc.SSHKeys(ctx)
	if err != nil {
		return "", err
	}
	named := slices.DeleteFunc(list, func(k hutch.SSHKey) bool { return k.ID != key && k.Name != key && k.Fingerprint != key })
	switch len(named) {
	case 0:
		return key, nil
	case 1:
		return named[0].ID, nil
	}
	return "", usageError{fmt.Errorf("%d keys have the name %q: give the id of one", len(named), key)}
}

func newSSHKeySign(h *home, std streams) *cobra.Command {
	var lifetime time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "sign [FILE]", Short: "Print a certificate for a public key, which opens as much for a while",
		Long: `Print a certificate for a public key: ~/.ssh/id_ed25519.pub, another file, or - for
the standard input. OpenSSH finds it beside the key, as id_ed25519-cert.pub. The
server keeps no record of it: it ends with its time, or with your token.
` + remoteHelp,
		Example: "  hutch ssh-key sign --lifetime 8h",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := publicKey(args, std)
			if err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			signed, err := svc.SignSSHKey(c.Context(), hutch.SSHSignRequest{Key: key, Lifetime: hutch.InSeconds(lifetime)})
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, signed)
			}
			_, err = fmt.Fprintln(std.out, strings.TrimSpace(signed.Certificate))
			return err
		},
	}
	positiveDurationVar(c.Flags(), &lifetime, "lifetime", "", time.Hour, "how long it is valid, at most 720h")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
