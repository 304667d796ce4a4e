package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newSnapshotDiff(h *home, std streams) *cobra.Command {
	var req hutch.SnapshotDiffRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "diff SNAPSHOT [SNAPSHOT]", Short: "List the files that differ between a snapshot and another one, or a sandbox now",
		Long: `List the files that differ between a snapshot and another one, by id or name. Without a
second one, the other side is the sandbox that the snapshot was made of, as it is now,
or the one that --sandbox names. Files that the image has and no program has written are
not compared.

Each line begins with A for an added file, C for a changed one or D for a deleted one. A
sandbox that sleeps stays asleep: if its files are only in its memory, the command fails
without --wake.
` + remoteHelp,
		Example: `  hutch snapshot diff before
  hutch snapshot diff --patch --path /workspace/src before after
  hutch snapshot diff --sandbox demo before`,
		Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.To = argument(args, 1)
			diff, err := svc.DiffSnapshot(ctx, args[0], req)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, diff)
			}
			if req.Text {
				err = showDiff(std.out, patchOf(diff))
			} else {
				err = writeChanges(std.out, diff)
			}
			if diff.Truncated {
				fmt.Fprintf(std.err, "hutch: %d of %d changes are listed: name a folder with --path\n", len(diff.Files), diff.Added+diff.Changed+diff.Deleted)
			}
			return err
		}),
	}
	f := c.Flags()
	f.StringVar(&req.SandboxID, "sandbox", "", "compare with this sandbox as it is now")
	f.StringVar(&req.Path, "path", "", "only this file, or this folder and all that is below it")
	f.BoolVarP(&req.Text, "patch", "p", false, "print the difference of the text of files")
	f.BoolVar(&req.Wake, "wake", false, "wake the sandbox if it sleeps or is paused")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// writeChanges prints a line for each change.
func writeChanges(w io.Writer, diff hutch.SnapshotDiff) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range diff.Files {
		fmt.Fprintf(t, "%s %s\t%s\n", letterOf(c.Kind), plain(c.Path()), strings.Join(whatChanged(c), ", "))
	}
	return t.Flush()
}

func letterOf(k hutch.ChangeKind) string {
	switch k {
	case hutch.AddedFile:
		return "A"
	case hutch.DeletedFile:
		return "D"
	}
	return "C"
}

// whatChanged describes a change in a few words.
func whatChanged(c hutch.FileChange) (words []string) {
	if c.Before == nil || c.After == nil {
		f := c.After
		if f == nil {
			f = c.Before
		}
		return []string{fileInWords(*f)}
	}
	if before, after := fileInWords(*c.Before), fileInWords(*c.After); before != after {
		words = append(words, before+" -> "+after)
	} else if c.Before.Mode == c.After.Mode && c.Before.UID == c.After.UID && c.Before.GID == c.After.GID {
		words = append(words, after+", other content")
	}
	if c.Before.Mode != c.After.Mode {
		words = append(words, fmt.Sprintf("mode %v -> %v", c.Before.Mode, c.After.Mode))
	}
	if c.Before.UID != c.After.UID || c.Before.GID != c.After.GID {
		words = append(words, fmt.Sprintf("owner %d:%d -> %d:%d", c.Before.UID, c.Before.GID, c.After.UID, c.After.GID))
	}
	return words
}

func fileInWords(f hutch.FileInfo) string {
	switch f.Type {
	case hutch.RegularFile:
		return size(f.Size)
	case hutch.Symlink:
		return "symlink to " + plain(f.Target)
	}
	return string(f.Type)
}

// patchOf returns the difference in the format of git, without its lines about git.
func patchOf(diff hutch.SnapshotDiff) string {
	var b strings.Builder
	for _, c := range diff.Files {
		name := strings.TrimPrefix(c.Path(), "/")
		before, after := plain("a/"+name), plain("b/"+name) // a stranger chose the name, and it can hold line ends
		if c.Before == nil {
			before = "/dev/null"
		}
		if c.After == nil {
			after = "/dev/null"
		}
		switch {
		case c.NoPatch != "":
			fmt.Fprintf(&b, "Files %s and %s differ: %s\n", before, after, omissions[c.NoPatch])
		case c.Patch != "":
			fmt.Fprintf(&b, "--- %s\n+++ %s\n%s", before, after, c.Patch)
		default:
			fmt.Fprintf(&b, "%s %s: %s\n", c.Kind, plain(name), strings.Join(whatChanged(c), ", "))
		}
	}
	return b.String()
}

var omissions = map[hutch.PatchOmission]string{
	hutch.BinaryFile: "not text", hutch.LargeFile: "too large to be shown here", hutch.LinkedFile: "another name of a file whose text is shown there",
	hutch.PatchLimit: "the answer has no room for more text, name a folder with --path",
}
