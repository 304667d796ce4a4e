package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/fleet"
)

const nodeHelp = "\nThis reads and changes the fleet's database, with what the data folder of this node knows. Run it\non any node, as the user that its server runs as."

func newNode(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "node", Aliases: []string{"nodes"}, Short: "Make several machines one server: join, list, cordon and remove nodes",
		Long: `Make several machines one server. Each is a node: it runs hutch serve with --fleet-listen, and all
share a PostgreSQL database. Any node answers for any sandbox; a new sandbox goes to
the node with the most room. The page docs/fleet.md leads through it.
` + nodeHelp,
		Example: `  hutch node token
  hutch node join https://10.0.0.5:7701 hutch-join-...
  hutch node ls
  hutch node drain node-b`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newNodeToken(h, std), newNodeJoin(h, std), newNodeList(h, std),
		newNodeState(h, std, "cordon", (*fleet.Directory).CordonNode, "Give a node no new sandboxes"),
		newNodeState(h, std, "uncordon", (*fleet.Directory).UncordonNode, "Give a node new sandboxes again"),
		newNodeDrain(h, std),
		newNodeRemove(h, std))
	return c
}

// identityFile returns the path of the file with this machine's identity as a node, which need not exist.
func (h *home) identityFile() (string, error) {
	dir, err := h.path()
	return datadir.NodeIdentity(filepath.Join(dir, datadir.Server)), err
}

// onFleet runs f on the directory of the fleet that this machine is a node of.
func (h *home) onFleet(ctx context.Context, f func(*fleet.Directory, *fleet.Identity) error) error {
	return h.onFleetFor(ctx, time.Minute, f)
}

// onFleetFor does the same as onFleet, with a time limit.
func (h *home) onFleetFor(ctx context.Context, limit time.Duration, f func(*fleet.Directory, *fleet.Identity) error) error {
	path, err := h.identityFile()
	if err != nil {
		return err
	}
	id, err := fleet.ReadIdentity(path)
	if errors.Is(err, fs.ErrNotExist) {
		return hutch.Errorf(hutch.NotFound, "this machine is not a node of a fleet: %s does not exist; run this on a node, or name its data folder with --data; the first node starts with `hutch serve --store URL --fleet-listen ADDRESS`", path)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d, err := fleet.OpenDirectory(ctx, id.Store)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(d, id)
}

func newNodeToken(h *home, std streams) *cobra.Command {
	var life time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "token", Short: "Print a token with which one machine can join",
		Long: "Print a token with which one machine can join the fleet, once. It contains the database's URL\nand the key of the secrets: keep it as secret as those.\n" + nodeHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if life <= 0 {
				return usageError{errors.New("--expires must be positive: give 1h or another time")}
			}
			return h.onFleet(c.Context(), func(d *fleet.Directory, id *fleet.Identity) error {
				token, err := fleet.NewToken(c.Context(), d, id, life)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(std.out, map[string]any{"token": token, "expiresAt": time.Now().Add(life).UTC().Truncate(time.Second)})
				}
				_, err = fmt.Fprintln(std.out, token)
				return err
			})
		},
	}
	durationVar(c.Flags(), &life, "expires", "", time.Hour, "how long the token is valid")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newNodeJoin(h *home, std streams) *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use: "join URL TOKEN", Short: "Make this machine a node of a fleet",
		Long: `Make this machine a node of the fleet that answers at URL, the address of a node's
--fleet-listen. What the node needs is written to the data folder, for its owner's
eyes only: its certificate and key, the URL of the database, and the key of the secrets.
Then start it with hutch serve --fleet-listen ADDRESS.`,
		Example: "  hutch node join https://10.0.0.5:7701 hutch-join-...",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := h.serverFolder()
			if err != nil {
				return err
			}
			path := datadir.NodeIdentity(dir)
			if _, err := os.Stat(path); err == nil {
				return hutch.Errorf(hutch.Conflict, "this machine is a node already: its identity is %s; remove that file, if the node was removed from its fleet", path)
			}
			if _, shares, err := datadir.ReadMembership(dir); err != nil || shares {
				return errors.Join(err, hutch.Errorf(hutch.Conflict, "the data folder %s belongs to a server of another installation: choose another with --data", filepath.Dir(dir)))
			}
			if _, err := os.Stat(datadir.Database(dir)); err == nil {
				return hutch.Errorf(hutch.Conflict, "the data folder %s has a server's own state, which a node would not see: choose another with --data", filepath.Dir(dir))
			}
			if name == "" {
				if name = fleet.HostName(); name == "" {
					return usageError{errors.New("the host name of this machine cannot name a node: give a name with --name")}
				}
			}
			id, err := fleet.Join(c.Context(), args[0], args[1], name)
			if err != nil {
				return err
			}
			if err := id.Write(path); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, map[string]any{"node": id.Node, "identity": path})
			}
			_, err = fmt.Fprintf(std.out, "joined as %s\nstart it: hutch serve --fleet-listen ADDRESS:PORT\n", id.Node)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the node (default: the machine's host name)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newNodeList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List nodes, with what their sandboxes can use",
		Long: "List nodes, with the memory and the cores of their awake sandboxes, how many sandboxes and snapshots each has,\nand its labels and taints.\n" + nodeHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return h.onFleet(c.Context(), func(d *fleet.Directory, id *fleet.Identity) error {
				list, err := d.Nodes(c.Context())
				if err != nil {
					return err
				}
				return writeList(std.out, asJSON, list.Nodes, "NODE\tSTATE\tADDRESS\tVERSION\tSANDBOXES\tSNAPSHOTS\tMEMORY\tCPU\tLABELS\tTAINTS", func(n hutch.Node) []any {
					return []any{n.ID, nodeState(n), dash(n.Address), dash(n.Version), n.Held, n.Snapshots,
						fmt.Sprintf("%d/%d MiB", n.Promised.Memory, n.Room.Memory), fmt.Sprintf("%.4g/%.4g", n.Promised.CPU, n.Room.CPU),
						dash(hutch.FormatNodeLabels(n.Labels)), dash(hutch.FormatNodeLabels(n.Taints))}
				})
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func nodeState(n hutch.Node) string {
	switch {
	case n.SeenUntil == nil:
		return "joined"
	case !n.Alive:
		return "away"
	}
	return string(n.State)
}

func newNodeState(h *home, std streams, verb string, change func(*fleet.Directory, context.Context, string) (hutch.Node, error), short string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: verb + " NODE", Short: short,
		Long: short + ". What runs there keeps running.\n" + nodeHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return h.onFleet(c.Context(), func(d *fleet.Directory, _ *fleet.Identity) error {
				n, err := change(d, c.Context(), args[0])
				if err != nil {
					return err
				}
				if !asJSON {
					_, err = fmt.Fprintf(std.out, "%s is %s\n", n.ID, n.State)
					return err
				}
				held, err := d.Held(c.Context(), args[0])
				if err != nil {
					return err
				}
				snapshots, err := d.KeptSnapshots(c.Context(), args[0])
				if err != nil {
					return err
				}
				return writeJSON(std.out, map[string]any{"node": n.ID, "state": n.State, "sandboxes": held, "snapshots": snapshots})
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newNodeDrain(h *home, std streams) *cobra.Command {
	var asJSON bool
	var wait time.Duration
	c := &cobra.Command{
		Use: "drain NODE", Short: "Put the sandboxes of a node to sleep, and hand them and its snapshots over to other nodes",
		Long: `Give a node no new sandboxes, put those that are there to sleep, and hand them over to other nodes by way
of the fleet's bucket (hutch serve --fleet-bucket). They wake elsewhere with their next use. Its snapshots go to
the bucket, too. The command waits until the node is empty, or has said of each that is left why it cannot leave. Those stay as they are, and the node
keeps trying; hutch node uncordon ends that.
` + nodeHelp,
		Example: "  hutch node drain node-b\n  hutch node drain node-b --wait 1h",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if wait < 0 {
				return usageError{errors.New("--wait must not be negative: give 10m or another time")}
			}
			return h.onFleetFor(c.Context(), wait+time.Minute, func(d *fleet.Directory, _ *fleet.Identity) error {
				left, err := d.Drain(c.Context(), args[0], wait)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(std.out, map[string]any{"node": args[0], "state": hutch.NodeDraining, "sandboxes": left.Sandboxes, "snapshots": left.Snapshots})
				}
				fmt.Fprintf(std.out, "%s is %s\n", args[0], hutch.NodeDraining)
				return printLeft(std, args[0], left)
			})
		},
	}
	durationVar(c.Flags(), &wait, "wait", "", 10*time.Minute, "how long to wait until the node is empty; it continues after that")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// printLeft prints what a drained node still has.
func printLeft(std streams, node string, left fleet.Remainder) error {
	if len(left.Sandboxes) == 0 && len(left.Snapshots) == 0 {
		_, err := fmt.Fprintln(std.out, "it holds no sandboxes: end its server, and `hutch node rm "+node+"`")
		return err
	}
	if n := len(left.Sandboxes); n > 0 {
		fmt.Fprintf(std.out, "it still holds %d sandboxes:\n", n)
		err := writeList(std.out, false, left.Sandboxes, "SANDBOX\tOWNER\tIMAGE\tWHY", func(s fleet.Holder) []any {
			return []any{s.ID, dash(s.Owner), s.About.Image, dash(s.Stays)}
		})
		if err != nil {
			return err
		}
	}
	if n := len(left.Snapshots); n > 0 {
		fmt.Fprintf(std.out, "it still has %d snapshots:\n", n)
		return writeList(std.out, false, left.Snapshots, "SNAPSHOT\tOWNER\tNAMES\tIN BUCKET\tWHY", func(s fleet.KeptSnapshot) []any {
			return []any{s.ID, dash(s.Owner), dash(strings.Join(s.Names, ",")), s.InBucket, dash(s.Stays)}
		})
	}
	return nil
}

func newNodeRemove(h *home, std streams) *cobra.Command {
	var force, asJSON bool
	c := &cobra.Command{
		Use: "rm NODE", Aliases: []string{"remove", "delete"}, Short: "Remove a node, and free the ids of what it held",
		Long: `Remove a node. Other nodes refuse its certificate at once, and it stops to serve. The ids of the sandboxes
that it held are free for new ones; what was in them is lost to their owners, and so are its snapshots that
are not in the fleet's bucket. A node that is alive and holds sandboxes or such snapshots, and the only one of the fleet, are removed only with --force.

Use it for a machine that never comes back, and for a certificate that was stolen.
Who had a node's data folder has seen the URL of the database and the key of the secrets,
too: change the database's password then.
` + nodeHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return h.onFleet(c.Context(), func(d *fleet.Directory, _ *fleet.Identity) error {
				removed, err := d.RemoveNode(c.Context(), args[0], force)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(std.out, removed)
				}
				_, err = fmt.Fprintf(std.out, "removed %s; %d sandboxes were lost\n", removed.Node, removed.Freed)
				return err
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "remove a node that is alive and holds sandboxes, or the only one")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
