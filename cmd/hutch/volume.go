package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/pipe"
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
	c.AddCommand(newVolumeCreate(h, std), newVolumeList(h, std), newVolumeInspect(h, std), newVolumeDelete(h, std), newVolumeCopy(h, std), newVolumeSave(h, std), newVolumeSync(h, std))
	return c
}

func newVolumeCreate(h *home, std streams) *cobra.Command {
	var req hutch.VolumeRequest
	var bucket hutch.VolumeBucket
	var asJSON bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a volume",
		Long: `Make a volume, and print its name. It is empty or, with --bucket, has the objects of a
bucket as its files. The server reads and writes the bucket with an access key. The key
is a secret of yours (hutch secret set), and does not enter any sandbox.
` + remoteHelp,
		Example: `  hutch volume create models --quota 4096
  hutch secret set S3_KEY
  hutch volume create data --bucket 's3://team/data?region=eu-central-1' --key-id AKIAEXAMPLE --key-secret S3_KEY`,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if req.Name = args[0]; bucket != (hutch.VolumeBucket{}) {
				req.Bucket = &bucket
			}
			made, err := svc.CreateVolume(ctx, req)
			return printMade(std, made.Name, made, asJSON, err)
		}),
	}
	c.Flags().IntVar(&req.Quota, "quota", 0, "most MiB that it can hold (default 1024)")
	c.Flags().StringVar(&bucket.URL, "bucket", "", "bucket with its files, as s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION")
	c.Flags().StringVar(&bucket.KeyID, "key-id", "", "id of the access key of the bucket")
	c.Flags().StringVar(&bucket.KeySecret, "key-secret", "", "name of the secret with the access key of the bucket")
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
				return []any{v.Name, size(v.Size), size(int64(v.Quota) << 20), when(&v.SavedAt, ""), dash(usedBy(v)), dash(problemOf(v))}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// problemOf returns the text about a volume in a list: why a save, or an exchange with its bucket, failed.
func problemOf(v hutch.Volume) string {
	problem := cmp.Or(v.Problem, v.BucketProblem)
	if problem == "" && v.Unsynced {
		return "not in its bucket yet"
	}
	return problem
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
	return alwaysJSON(&cobra.Command{
		Use: "inspect VOLUME...", Short: "Print everything about volumes, as JSON", Long: "Print everything about volumes, as a JSON array.\n" + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			return printRecords(ctx, std, args, svc.Volume)
		}),
	})
}

func newVolumeDelete(h *home, std streams) *cobra.Command {
	var asJSON, force bool
	names := func(ctx context.Context, svc *client.Client) (names []string, err error) {
		list, err := svc.Volumes(ctx)
		for _, v := range list {
			names = append(names, v.Name)
		}
		return names, err
	}
	c := &cobra.Command{
		Use: "rm VOLUME...", Aliases: []string{"delete"}, Short: "Delete volumes with their files",
		Long: "Delete volumes with their files. One that a sandbox has, also a sandbox that sleeps, is\nnot deleted, and neither is one with changes that are not in its bucket. A bucket stays\nas it is.\n" + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{"volume", names, func(svc *client.Client, ctx context.Context, name string) error {
			return svc.DeleteVolume(ctx, name, force)
		}}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "also with changes that are not in the volume's bucket, which are lost")
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

func newVolumeSync(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "sync VOLUME", Short: "Exchange changes with the bucket of a volume",
		Long: `Write the changes of a volume to its bucket, and those of the bucket to the volume, and
print its name. While a sandbox can write to the volume, only its changes are written.
The server does the first soon after each save, and both when a sandbox is created
with the volume.
` + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			v, err := svc.SyncVolume(ctx, args[0])
			return printMade(std, v.Name, v, asJSON, err)
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
	return withJSON(c, std, func(args []string) done { return done{"source": args[0], "target": args[1]} })
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
	return pipe.Through(func(w io.Writer) error { return here.Pack(ctx, "", req, w) }, func(r io.Reader) error {
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
	return pipe.Through(func(w io.Writer) error { return svc.ReadVolume(ctx, name, from, w) }, func(r io.Reader) error {
		return here.Unpack(ctx, "", hutch.UnpackRequest{Dir: to, Format: hutch.Tar}, r)
	})
}

// mounts parses the flags --volume. The server reports errors in them.
func mounts(flags []string) (list []hutch.VolumeMount) {
	for _, text := range flags {
		list = append(list, hutch.ParseVolumeMount(text))
	}
	return list
}
