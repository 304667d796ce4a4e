package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/authority"
	"hutch/internal/datadir"
)

func newAuthority(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "authority", Short: "Show the authority that sandboxes trust for brokered hosts, or make another",
		Long: `Show the certificate authority that the server of this data folder signs for
brokered hosts with, and that its sandboxes trust. The first start of the server
makes it.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := h.authorityFolder()
			if err != nil {
				return err
			}
			a, err := authority.Open(datadir.Authority(dir), authority.Sandboxes)
			if err != nil {
				return err
			}
			return writeAuthority(std.out, a, asJSON)
		},
	}
	c.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(&cobra.Command{
		Use: "own", Short: "Print the certificate that clients of a server with --tls-own trust",
		Long: `Print the certificate of the authority that signs for the server's own names, in
PEM. A server with --tls-own makes it at its first start. Give it to clients:
SSL_CERT_FILE for hutch, Go, curl and Python, NODE_EXTRA_CA_CERTS for Node.js.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return h.printOwnAuthority(std.out, asJSON) },
	}, &cobra.Command{
		Use: "rotate", Short: "Make another authority in its place, while the server is down",
		Long: `Make another authority, with a key of its own, in the place of the present one.
No server may run meanwhile; sandboxes may. Those that are made from then on
trust only the new one. Existing sandboxes trust only the old one: brokered
hosts are out of their reach, and they have to be created again.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return h.rotateAuthority(std.out, asJSON) },
	})
	return c
}

func (h *home) printOwnAuthority(out io.Writer, asJSON bool) error {
	dir, err := h.path()
	if err != nil {
		return err
	}
	file := datadir.ServerAuthority(filepath.Join(dir, datadir.Server))
	if _, err := os.Stat(file); err != nil {
		return hutch.Errorf(hutch.NotFound, "no server with --tls-own has run with the data folder %s: choose its data folder with --data or $HUTCH_DATA", dir)
	}
	a, err := authority.Open(file, authority.Purpose{})
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeAuthority(out, a, true)
	}
	_, err = out.Write(a.Certificate())
	return err
}

func (h *home) rotateAuthority(out io.Writer, asJSON bool) error {
	dir, err := h.authorityFolder()
	if err != nil {
		return err
	}
	f, free, err := datadir.LockPatiently(dir)
	if err != nil {
		return err
	}
	if !free {
		return hutch.Errorf(hutch.Conflict, "a server uses the data folder %s: end it, do this, and start it again; its sandboxes run on meanwhile", filepath.Dir(dir))
	}
	defer f.Close()
	if _, shares, err := datadir.ReadMembership(dir); err != nil || shares {
		return errors.Join(err, hutch.Errorf(hutch.Unsupported, "the authority is that of an installation whose state is in PostgreSQL, and its servers share it: it cannot be rotated yet"))
	}
	a, err := authority.Rotate(datadir.Authority(dir), authority.Sandboxes)
	if err != nil {
		return err
	}
	return writeAuthority(out, a, asJSON)
}

// authorityFolder returns the folder of a server that has an authority. It never creates one.
func (h *home) authorityFolder() (string, error) {
	dir, err := h.path()
	if err != nil {
		return "", err
	}
	server := filepath.Join(dir, datadir.Server)
	if _, err := os.Stat(datadir.Authority(server)); err != nil {
		return "", hutch.Errorf(hutch.NotFound, "no server has run with the data folder %s: choose its data folder with --data or $HUTCH_DATA", dir)
	}
	return server, nil
}

// serverFolder returns the folder in which the server of the data folder keeps its own files.
func (h *home) serverFolder() (string, error) {
	if err := h.open(); err != nil {
		return "", err
	}
	return h.data().Make(datadir.Server)
}

func writeAuthority(w io.Writer, a *authority.Authority, asJSON bool) error {
	until := a.Ends().UTC()
	if asJSON {
		return writeJSON(w, map[string]any{"sha256": a.Fingerprint(), "until": until})
	}
	_, err := fmt.Fprintf(w, "sha256  %s\nuntil   %s\n", a.Fingerprint(), until.Format(time.DateOnly))
	return err
}
