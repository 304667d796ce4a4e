package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

func newFS(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "fs", Short: "Look at and change the files of a sandbox of the server",
		Long: `Look at and change the files of a sandbox of the server. A PATH is absolute, or
relative to /workspace.
` + remoteHelp,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q of hutch fs%s; see `hutch fs --help`", args[0], similarName(args[0], commandNames(c)))}
			}
			return c.Help()
		},
	}
	c.AddCommand(
		newFSList(h, std), newFSFind(h, std), newFSGrep(h, std), newFSStat(h, std), newFSCat(h, std), newFSWrite(h, std), newFSEdit(h, std),
		newFSMkdir(h, std), newFSMove(h, std, "mv"), newFSMove(h, std, "cp"), newFSRemove(h, std), newFSChmod(h, std),
	)
	for _, sub := range c.Commands() {
		takesFileUser(sub)
	}
	return c
}

// takesFileUser gives a command about files the flag --user.
func takesFileUser(c *cobra.Command) {
	var user string
	c.Flags().StringVarP(&user, "user", "u", "", "whose rights are used, and who owns what is made: `NAME` or UID, or one of them with :GROUP (default: the sandbox's user)")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		c.SetContext(hutch.AsUser(c.Context(), user))
		return run(c, args)
	}
}

func newFSList(h *home, std streams) *cobra.Command {
	var req hutch.ListRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "ls [flags] SANDBOX [PATH]", Short: "List a folder", Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.Path = "."
			if len(args) == 2 {
				req.Path = args[1]
			}
			return printFiles(ctx, svc, args[0], req, asJSON, std)
		}),
	}
	f := c.Flags()
	f.BoolVarP(&req.Recursive, "recursive", "r", false, "and all folders below")
	f.BoolVarP(&req.Hidden, "all", "a", false, "names that begin with a dot, too")
	f.IntVar(&req.Limit, "limit", 0, "most files to print (default 10000)")
	f.BoolVar(&asJSON, "json", false, "print JSON, one object in each line")
	return c
}

func newFSFind(h *home, std streams) *cobra.Command {
	var req hutch.ListRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "find [flags] SANDBOX PATTERN [PATH]", Short: "Find files by a pattern, such as '*.go' or 'src/**/*.ts'", Args: cobra.RangeArgs(2, 3),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.Path, req.Glob = ".", args[1]
			if len(args) == 3 {
				req.Path = args[2]
			}
			return namingLimit(svc.ListFiles(ctx, args[0], req, func(f hutch.FileInfo) error {
				if asJSON {
					return json.NewEncoder(std.out).Encode(f)
				}
				_, err := fmt.Fprintln(std.out, plain(f.Path))
				return err
			}))
		}),
	}
	c.Flags().BoolVarP(&req.Hidden, "all", "a", false, "names that begin with a dot, too")
	c.Flags().IntVar(&req.Limit, "limit", 0, "most files to print (default 10000)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object in each line")
	return c
}

func printFiles(ctx context.Context, svc *client.Client, id string, req hutch.ListRequest, asJSON bool, std streams) error {
	t := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	err := svc.ListFiles(ctx, id, req, func(f hutch.FileInfo) error {
		if asJSON {
			return json.NewEncoder(std.out).Encode(f)
		}
		_, err := fmt.Fprintln(t, row(f))
		return err
	})
	if ferr := t.Flush(); err == nil {
		err = ferr
	}
	return namingLimit(err)
}

// namingLimit adds the flag --limit to the error of a list that was cut.
func namingLimit(err error) error {
	if e, ok := errors.AsType[*hutch.Error](err); ok && (e.Limit() == "files" || e.Limit() == "matches") {
		return fmt.Errorf("%w with `--limit N`", err)
	}
	return err
}

func row(f hutch.FileInfo) string {
	name := plain(f.Path)
	switch f.Type {
	case hutch.Directory:
		name += "/"
	case hutch.Symlink:
		name += " -> " + plain(f.Target)
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s", f.Mode, f.Size, f.Modified.Local().Format("2006-01-02 15:04"), name)
}

func newFSGrep(h *home, std streams) *cobra.Command {
	var req hutch.SearchRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "grep [flags] SANDBOX PATTERN [PATH]", Short: "Search files by a regular expression (RE2)", Args: cobra.RangeArgs(2, 3),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.Path, req.Pattern = ".", args[1]
			if len(args) == 3 {
				req.Path = args[2]
			}
			return namingLimit(svc.SearchFiles(ctx, args[0], req, func(m hutch.Match) error {
				if asJSON {
					return json.NewEncoder(std.out).Encode(m)
				}
				_, err := fmt.Fprintf(std.out, "%s:%d:%s\n", plain(m.Path), m.Line, text.Inert(m.Text))
				return err
			}))
		}),
	}
	c.Flags().StringVarP(&req.Glob, "glob", "g", "", "only in files that match this pattern, such as '*.go'")
	c.Flags().BoolVarP(&req.Hidden, "all", "a", false, "names that begin with a dot, too")
	c.Flags().IntVar(&req.Limit, "limit", 0, "most matches to print (default 1000)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object in each line")
	return c
}

func newFSStat(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "stat [flags] SANDBOX PATH", Short: "Describe a file", Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			f, err := svc.Stat(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, f)
			}
			_, err = fmt.Fprintf(std.out, "%s\n  type      %s\n  size      %d\n  mode      %s\n  modified  %s\n",
				plain(f.Path), f.Type, f.Size, f.Mode, f.Modified.Local().Format("2006-01-02 15:04:05"))
			return err
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newFSCat(h *home, std streams) *cobra.Command {
	var req hutch.ReadRequest
	c := &cobra.Command{
		Use: "cat [flags] SANDBOX PATH...", Short: "Print files", Args: cobra.MinimumNArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			for _, p := range args[1:] {
				req.Path = p
				if _, err := svc.ReadFile(ctx, args[0], req, std.out); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().Int64Var(&req.Offset, "offset", 0, "bytes to skip; negative counts from the end")
	c.Flags().Int64Var(&req.Length, "length", 0, "most bytes to print")
	c.Flags().IntVar(&req.FirstLine, "first-line", 0, "begin at this line, counted from 1")
	c.Flags().IntVar(&req.LastLine, "last-line", 0, "end with this line")
	return c
}

func newFSWrite(h *home, std streams) *cobra.Command {
	var req hutch.WriteRequest
	var mode string
	c := &cobra.Command{
		Use: "write [flags] SANDBOX PATH", Short: "Write the standard input to a file, as a whole or not at all", Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) (err error) {
			req.Path, req.Parents = args[1], true
			if mode != "" {
				if req.Mode, err = parseMode(mode); err != nil {
					return err
				}
			}
			_, err = svc.WriteFile(ctx, args[0], req, std.in)
			return err
		}),
	}
	c.Flags().BoolVar(&req.Append, "append", false, "append to the file")
	c.Flags().BoolVar(&req.Create, "create", false, "fail if the file exists")
	c.Flags().StringVarP(&mode, "mode", "m", "", "permissions in octal (default 0644, or what it has)")
	return withJSON(c, std, func(args []string) done { return done{"sandboxId": args[0], "path": args[1]} })
}

func parseMode(text string) (hutch.FileMode, error) {
	mode, err := hutch.ParseFileMode(text)
	if err != nil || mode.Check() != nil {
		return 0, usageError{fmt.Errorf("mode %q: give permissions in octal, such as 0644", text)}
	}
	return mode, nil
}

func newFSMkdir(h *home, std streams) *cobra.Command {
	var parents bool
	c := &cobra.Command{
		Use: "mkdir [flags] SANDBOX PATH...", Short: "Make folders", Args: cobra.MinimumNArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			for _, p := range args[1:] {
				if err := svc.Mkdir(ctx, args[0], p, parents); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parent folders, too; an existing folder is not an error")
	return withJSON(c, std, onPaths)
}

func newFSMove(h *home, std streams, verb string) *cobra.Command {
	var force bool
	words := map[string]string{"mv": "Move or rename", "cp": "Copy"}[verb]
	c := &cobra.Command{
		Use: verb + " [flags] SANDBOX FROM TO", Short: words + " a file or folder within the sandbox", Args: cobra.ExactArgs(3),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if verb == "cp" {
				return svc.Copy(ctx, args[0], args[1], args[2], force)
			}
			return svc.Move(ctx, args[0], args[1], args[2], force)
		}),
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "replace an existing file")
	return withJSON(c, std, func(args []string) done { return done{"sandboxId": args[0], "from": args[1], "to": args[2]} })
}

func newFSRemove(h *home, std streams) *cobra.Command {
	var recursive bool
	c := &cobra.Command{
		Use: "rm [flags] SANDBOX PATH...", Short: "Delete files and folders", Args: cobra.MinimumNArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			for _, p := range args[1:] {
				err := svc.Delete(ctx, args[0], p, recursive)
				if errors.Is(err, hutch.Conflict) && !recursive {
					if f, failed := svc.Stat(ctx, args[0], p); failed == nil && f.Type == hutch.Directory {
						err = fmt.Errorf("%w (-r)", err)
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "folders, with all that is in them")
	return withJSON(c, std, onPaths)
}

func newFSChmod(h *home, std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "chmod SANDBOX MODE PATH...", Short: "Change permissions", Args: cobra.MinimumNArgs(3),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			mode, err := parseMode(args[1])
			if err != nil {
				return err
			}
			for _, p := range args[2:] {
				if err := svc.Chmod(ctx, args[0], p, mode); err != nil {
					return err
				}
			}
			return nil
		}),
	}, std, func(args []string) done { return done{"sandboxId": args[0], "mode": args[1], "paths": args[2:]} })
}

func newWatch(h *home, std streams) *cobra.Command {
	var req hutch.WatchRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "watch [flags] SANDBOX [PATH]", Short: "Print changes to the files of a sandbox of the server, as they happen",
		Long: "Print changes below a path, until it is gone or Ctrl-C. The first line is ready: nothing after it is missed.\n" + remoteHelp,
		Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.Path = "."
			if len(args) == 2 {
				req.Path = args[1]
			}
			return svc.Watch(ctx, args[0], req, func(e hutch.FileEvent) error {
				if asJSON {
					return json.NewEncoder(std.out).Encode(e)
				}
				line := string(e.Type)
				if e.Path != "" {
					line += " " + plain(e.Path)
				}
				if e.From != "" {
					line += " from " + plain(e.From)
				}
				_, err := fmt.Fprintln(std.out, line)
				return err
			})
		}),
	}
	c.Flags().BoolVarP(&req.Recursive, "recursive", "r", false, "in folders below, too")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object in each line")
	return c
}
