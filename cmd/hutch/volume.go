package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newVolume(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "volume", Aliases: []string{"volumes"}, Short: "Keep folders that outlive their sandboxes",
		Long: `Manage volumes: named folders that outlive sandboxes. A sandbox that is created with
a volume begins with its files. One sandbox at a time can write to a volume, and
the server saves what it wrote; any number can read it.
` + remoteHelp,
		Example: `  hutch volume create models --quota 4096
  hutch volume cp ./weights models:
  hutch create --volume models:/workspace/models:ro demo`,
	}
	c.AddCommand(newVolumeCreate(h, std), newVolumeList(h, std), newVolumeInspect(h, std), newVolumeDelete(h, std), newVolumeCopy(h, std), newVolumeSave(h, std))
	return c
}

func newVolumeCreate(h *home, std streams) *cobra.Command {
	var req hutch.VolumeRequest
	var asJSON bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Make an empty volume", Long: "Make an empty volume, and print its name.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req.Name = args[0]
			made, err := svc.CreateVolume(ctx, req)
			return printMade(std, made.Name, made, asJSON, err)
		}),
	}
	c.Flags().IntVar(&req.Quota, "quota", 0, "most MiB that it can hold (default 1024)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newVolumeList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List volumes", Long: "List volumes by name, with the sandboxes that have them. In the list, a sandbox that\ncan write to the volume is marked with *.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Volumes(ctx)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "VOLUME\tSIZE\tQUOTA\tSAVED\tUSED BY\tPROBLEM", func(v hutch.Volume) []any {
				return []any{v.Name, size(v.Size), size(int64(v.Quota) << 20), when(&v.SavedAt, ""), dash(usedBy(v)), dash(v.Problem)}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// usedBy names the sandboxes that have a volume.
func usedBy(v hutch.Volume) string {
	var names []string
	for _, u := range v.Uses {
		name := u.SandboxID
		if !u.ReadOnly {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func newVolumeInspect(h *home, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "inspect VOLUME...", Short: "Print everything about volumes, as JSON", Long: "Print everything about volumes, as a JSON array.\n" + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			return printRecords(ctx, std, args, svc.Volume)
		}),
	}
}

func newVolumeDelete(h *home, std streams) *cobra.Command {
	var asJSON bool
	names := func(ctx context.Context, svc *client.Client) (names []string, err error) {
		list, err := svc.Volumes(ctx)
		for _, v := range list {
			names = append(names, v.Name)
		}
		return names, err
	}
	c := &cobra.Command{
		Use: "rm VOLUME...", Aliases: []string{"delete"}, Short: "Delete volumes with their files",
		Long: "Delete volumes with their files. One that a sandbox has, also a sandbox that sleeps, is\nnot deleted.\n" + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{"volume", names, (*client.Client).DeleteVolume}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newVolumeSave(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "save SANDBOX", Short: "Save what a sandbox wrote to its volumes",
		Long: `Save the volumes that a sandbox can write to now, and print their names. The server
does this once a minute, before the sandbox sleeps and before it is destroyed.
` + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			list, err := svc.SaveVolumes(ctx, args[0])
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "", func(v hutch.Volume) []any { return []any{v.Name} })
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newVolumeCopy(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "cp SOURCE TARGET", Short: "Copy files and folders into a volume, or out of it",
		Long: `Copy a file or a folder into a folder of a volume, or out of a volume into a folder.
What is in the volume is written VOLUME:PATH; VOLUME: is all of it. A missing target
folder is made. - is the standard input or output, as a tar archive. A volume to which
a sandbox can write is not changed: copy into that sandbox.
` + remoteHelp,
		Example: `  hutch volume cp ./weights models:
  hutch volume cp models:weights/small ./here
  hutch volume cp models: - > models.tar
  hutch volume cp - models: < models.tar`,
		Args: cobra.ExactArgs(2),
		PreRunE: func(c *cobra.Command, args []string) error {
			if args[1] == "-" && c.Flags().Changed("json") {
				return usageError{errors.New("--json and the target - both use the standard output: copy to a folder")}
			}
			return nil
		},
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			fromName, from, out := cutVolume(args[0])
			toName, to, in := cutVolume(args[1])
			if in == out {
				return usageError{errors.New("either SOURCE or TARGET must be VOLUME:PATH, and the other a path of this machine, or -")}
			}
			if in {
				return intoVolume(ctx, svc, args[0], toName, to, std)
			}
			return outOfVolume(ctx, svc, fromName, from, args[1], std)
		}),
	}
	return tellsJSON(c, std, func(args []string) done { return done{"source": args[0], "target": args[1]} })
}

// cutVolume splits VOLUME:PATH; ok is false for a path of this machine.
func cutVolume(arg string) (name, path string, ok bool) {
	name, path, ok = strings.Cut(arg, ":")
	return name, path, ok && hutch.CheckVolume(name) == nil
}

// intoVolume copies a file or folder into a folder of a volume. The content of a folder is copied if its path ends
// with a dot.
func intoVolume(ctx context.Context, svc *client.Client, from, name, to string, std streams) error {
	if from == "-" {
		_, err := svc.WriteVolume(ctx, name, to, std.in)
		return err
	}
	if _, err := os.Lstat(from); err != nil {
		return err
	}
	req := hutch.PackRequest{Dir: from, Format: hutch.Tar}
	if last := filepath.Base(from); last != "." && last != ".." && last != "/" && !strings.HasSuffix(from, "/.") {
		req.Dir, req.Paths = filepath.Dir(from), []string{last}
	}
	return through(func(w io.Writer) error { return here.Pack(ctx, "", req, w) }, func(r io.Reader) error {
		_, err := svc.WriteVolume(ctx, name, to, r)
		return err
	})
}

// outOfVolume copies a file or folder of a volume into a folder.
func outOfVolume(ctx context.Context, svc *client.Client, name, from, to string, std streams) error {
	if to == "-" {
		if showsTerminal(std.out) {
			return usageError{errors.New("a tar archive is for no terminal: redirect the standard output to a file")}
		}
		return svc.ReadVolume(ctx, name, from, std.out)
	}
	return through(func(w io.Writer) error { return svc.ReadVolume(ctx, name, from, w) }, func(r io.Reader) error {
		return here.Unpack(ctx, "", hutch.UnpackRequest{Dir: to, Format: hutch.Tar}, r)
	})
}

// mounts reads the flags --volume. The server says what is wrong with them.
func mounts(flags []string) (list []hutch.VolumeMount) {
	for _, text := range flags {
		list = append(list, hutch.ParseVolumeMount(text))
	}
	return list
}
