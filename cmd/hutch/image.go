package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/image"
	"hutch/internal/oci"
)

func newImage(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "image", Aliases: []string{"images"}, Short: "Pull, list and remove images",
		Long: `Manage the images of the server: root file systems that sandboxes can have in place
of the host's programs. A sandbox that is created with an image which the server
does not have pulls it.
` + remoteHelp,
		Example: `  hutch image pull python:3.12-slim
  hutch create --image python:3.12-slim demo
  docker save my-app | hutch image load --name my-app`,
	}
	c.AddCommand(
		newImagePull(h, std), newImageList(h, std), newImageInspect(h, std), newImageTag(h, std), newImageCommit(h, std), newImageDelete(h, std), newImagePrune(h, std),
		newImageLoad(h, std), newImageSave(h, std), newImagePush(h, std), newImageLogin(h, std),
	)
	return c
}

// registryFlags are the flags of commands that speak to a registry.
type registryFlags struct {
	user  string
	quiet bool
}

func (f *registryFlags) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.user, "username", "u", "", "sign in to the registry as this user; the password is asked for, or piped in")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
}

func (f *registryFlags) login(ctx context.Context, std streams) (hutch.RegistryLogin, error) {
	if f.user == "" {
		return hutch.RegistryLogin{}, nil
	}
	password, err := readSecret(ctx, std, "password of "+f.user)
	return hutch.RegistryLogin{Username: f.user, Password: password}, err
}

func newImagePull(h *home, std streams) *cobra.Command {
	var f registryFlags
	var req hutch.PullRequest
	var pull string
	var asJSON bool
	c := &cobra.Command{
		Use: "pull IMAGE", Short: "Get an image from its registry", Long: "Get an image from its registry, and print its id.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) (err error) {
			req.Image, req.Pull = args[0], hutch.PullPolicy(pull)
			if req.RegistryLogin, err = f.login(ctx, std); err != nil {
				return err
			}
			p := newTransfers(std.err, f.quiet)
			made, err := svc.PullImage(ctx, req, p.show)
			p.end()
			return printMade(std, made.ID, made, asJSON, err)
		}),
	}
	f.flags(c)
	c.Flags().StringVar(&pull, "pull", "always", "when to ask the registry: always, missing or never")
	c.Flags().BoolVar(&req.Shared, "shared", false, "let all owners use it; needs the scope admin")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newImagePush(h *home, std streams) *cobra.Command {
	var f registryFlags
	return withJSON(withFlags(&cobra.Command{
		Use: "push IMAGE [TO]", Short: "Send an image to a registry",
		Long: "Send an image to a registry: the one in its name, or in TO, which becomes one more name of it.\n" + remoteHelp,
		Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) (err error) {
			req := hutch.PushRequest{Image: args[0], To: strings.Join(args[1:], "")}
			if req.RegistryLogin, err = f.login(ctx, std); err != nil {
				return err
			}
			p := newTransfers(std.err, f.quiet)
			defer p.end()
			return svc.PushImage(ctx, req, p.show)
		}),
	}, f.flags), std, func(args []string) done { return done{"image": args[0], "to": args[len(args)-1]} })
}

func withFlags(c *cobra.Command, add func(*cobra.Command)) *cobra.Command {
	add(c)
	return c
}

func newImageList(h *home, std streams) *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List images, the oldest first", Long: "List your images and the shared ones, the oldest first.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Images(ctx)
			if err != nil {
				return err
			}
			if quiet && !asJSON {
				return writeList(std.out, false, list, "", func(i hutch.Image) []any { return []any{i.ID} })
			}
			return writeList(std.out, asJSON, list, "IMAGE\tID\tSIZE\tPULLED\tUSED\tSHARED", imageRow)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	return c
}

func imageRow(i hutch.Image) []any {
	return []any{dash(strings.Join(i.Names, " ")), shortDigest(i.ID), size(i.Size), when(&i.PulledAt, ""), when(&i.UsedAt, "never"), yesNo(i.Shared)}
}

// shortDigest returns the part of a digest that people read.
func shortDigest(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:min(len(hex), 12)]
}

func newImageInspect(h *home, std streams) *cobra.Command {
	return alwaysJSON(&cobra.Command{
		Use: "inspect IMAGE...", Short: "Print everything about images, as JSON", Long: "Print everything about images, as a JSON array.\n" + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			return printRecords(ctx, std, args, svc.Image)
		}),
	})
}

func newImageTag(h *home, std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "tag IMAGE NAME", Short: "Give an image another name", Long: "Give an image another name. A name that another image has moves to this one.\n" + remoteHelp,
		Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			_, err := svc.TagImage(ctx, args[0], args[1])
			return err
		}),
	}, std, func(args []string) done { return done{"image": args[0], "name": args[1]} })
}

func newImageCommit(h *home, std streams) *cobra.Command {
	var asJSON bool
	var snapshot string
	c := &cobra.Command{
		Use: "commit [--snapshot SNAPSHOT | SANDBOX] NAME", Short: "Make an image of the changes in a sandbox or a snapshot",
		Long: `Make an image of the changes in a sandbox, and print its id: the files that were
written, as one layer over the image that the sandbox began with, without the files of
that image that were deleted. Docker runs it, too. The settings of the image stay. With
--snapshot it is made of the files of a snapshot or template; no sandbox starts. A
snapshot does not record deleted files of the image, so they are there again.
` + remoteHelp,
		Example: "  hutch image commit demo my-python:1\n  hutch image commit --snapshot warm my-python:2",
		Args:    cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req := hutch.CommitRequest{Name: args[len(args)-1]}
			var made hutch.Image
			var err error
			switch {
			case snapshot != "" && len(args) == 1:
				made, err = svc.CommitSnapshot(ctx, snapshot, req)
			case snapshot == "" && len(args) == 2:
				made, err = svc.CommitImage(ctx, args[0], req)
			default:
				return usageError{fmt.Errorf("give a sandbox or --snapshot, and the name of the new image")}
			}
			return printMade(std, made.ID, made, asJSON, err)
		}),
	}
	c.Flags().StringVar(&snapshot, "snapshot", "", "the snapshot or template, by its id or name, in place of a sandbox")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newImageDelete(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm IMAGE...", Aliases: []string{"delete"}, Short: "Remove names of images, and images with their last name",
		Long: `Remove names of images, and each image with its last name. An image that a sandbox
or a snapshot began with stays.
` + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{noun: "image", remove: (*client.Client).DeleteImage}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newImagePrune(h *home, std streams) *cobra.Command {
	var unused time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "prune", Short: "Remove images that nothing uses", Long: "Remove your images that no sandbox and no snapshot uses, and print their ids.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			p, err := svc.PruneImages(ctx, hutch.PruneRequest{Unused: hutch.InSeconds(unused)})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, p)
			}
			for _, id := range p.Images {
				fmt.Fprintln(std.out, id)
			}
			fmt.Fprintf(std.err, "freed %s\n", size(p.Freed))
			return nil
		}),
	}
	positiveDurationVar(c.Flags(), &unused, "unused", "", 0, "only those that nothing has used for this long, such as 7d")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newImageLoad(h *home, std streams) *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use: "load [FILE]", Short: "Read images from an archive or a folder",
		Long: `Read images from an archive, as docker save or an OCI layout has it, plain or
compressed; from the folder of an OCI layout; or from the standard input. A file can
be written as docker-archive:FILE, a folder as oci:FOLDER. The ids are printed.
` + remoteHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			in, err := openArchive(std.in, strings.Join(args, ""))
			if err != nil {
				return err
			}
			defer in.Close()
			list, err := svc.LoadImages(ctx, name, in)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "", func(i hutch.Image) []any { return []any{i.ID} })
		}),
	}
	c.Flags().StringVar(&name, "name", "", "one more name for the image")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newImageSave(h *home, std streams) *cobra.Command {
	var to string
	return withJSON(withFlags(&cobra.Command{
		Use: "save IMAGE", Short: "Write an image as an archive that docker load reads",
		Long: "Write an image as an archive that docker load reads, to a file or to the standard output.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if to == "" {
				if f, ok := std.out.(*os.File); ok && isTerminal(f) {
					return usageError{fmt.Errorf("an archive is not for a terminal: give a file with --output")}
				}
				return svc.SaveImage(ctx, args[0], std.out)
			}
			return intoFile(to, func(w io.Writer) error { return svc.SaveImage(ctx, args[0], w) })
		}),
	}, func(c *cobra.Command) {
		c.Flags().StringVarP(&to, "output", "o", "", "`FILE` to write (default: the standard output)")
	}),
		std, func(args []string) done { return done{"image": args[0], "file": to} })
}

func newImageLogin(h *home, std streams) *cobra.Command {
	var user string
	var docker bool
	return withJSON(withFlags(&cobra.Command{
		Use: "login REGISTRY", Short: "Save your login to a registry",
		Long: `Keep a user name and a password, or token, for a registry. The server uses it for
your pulls and pushes. It is a secret, REGISTRY_ and the registry's name, and
` + "`hutch secret rm`" + ` removes it. With --docker, it is the login that Docker or Podman
has on this machine: ` + "`docker login`" + ` keeps it in a file or in a program.
` + remoteHelp,
		Example: "  hutch image login -u me ghcr.io\n  hutch image login --docker ghcr.io",
		Args:    cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			login, err := registryLogin(ctx, std, args[0], user, docker)
			if err != nil {
				return err
			}
			_, err = svc.SetSecret(ctx, hutch.RegistrySecret(args[0]), hutch.SecretRequest{Value: login})
			return err
		}),
	}, func(c *cobra.Command) {
		c.Flags().StringVarP(&user, "username", "u", "", "user name in the registry")
		c.Flags().BoolVar(&docker, "docker", false, "the login that Docker or Podman has on this machine")
	}),
		std, func(args []string) done { return done{"registry": args[0], "secret": hutch.RegistrySecret(args[0])} })
}

// registryLogin returns the name and the password for a registry, separated by a colon.
func registryLogin(ctx context.Context, std streams, registry, user string, docker bool) (string, error) {
	switch {
	case docker && user != "":
		return "", usageError{fmt.Errorf("--docker and --username exclude each other: Docker's login has a user name")}
	case docker:
		return dockerLogin(ctx, registry)
	case user == "":
		return "", usageError{fmt.Errorf("the user name is missing: give it with --username, or --docker for the login that Docker has")}
	}
	password, err := readSecret(ctx, std, "password of "+user)
	return user + ":" + password, err
}

// dockerLogin returns the login that Docker or Podman has saved for a registry.
func dockerLogin(ctx context.Context, registry string) (string, error) {
	to, err := name.NewRegistry(registry)
	if err != nil {
		return "", hutch.Errorf(hutch.Invalid, "%.100q is not the name of a registry: write a host, e.g. ghcr.io", registry)
	}
	var login *authn.AuthConfig
	found, err := authn.Resolve(ctx, authn.DefaultKeychain, to)
	if err == nil {
		login, err = authn.Authorization(ctx, found)
	}
	switch {
	case err != nil:
		return "", hutch.Errorf(hutch.Unavailable, "Docker's login for %s could not be read: %v; give it with --username", registry, err)
	case found == authn.Anonymous:
		return "", hutch.Errorf(hutch.NotFound, "Docker has no login for %s: run `docker login %s`, or give it with --username", registry, registry)
	case login.Username == "" || login.Password == "":
		return "", hutch.Errorf(hutch.Unsupported, "Docker's login for %s is a token that only Docker can use: make an access token in the registry, and give it with --username", registry)
	}
	return login.Username + ":" + login.Password, nil
}

// pullFirst gets the image of a new sandbox, and shows the progress, because a create does not show it.
func pullFirst(ctx context.Context, svc hutch.Service, req *hutch.CreateRequest, std streams) error {
	images, ok := svc.(hutch.Images)
	if path, isFile := hutch.ImageFile(req.Image); ok && isFile {
		return loadFirst(ctx, images, req, path)
	}
	if !ok || req.Image == "" || req.Image == image.HostName || req.Pull == hutch.PullNever {
		return nil
	}
	if req.ID != "" {
		if _, err := svc.Sandbox(ctx, req.ID); err == nil {
			return nil
		}
	}
	if isTemplate(ctx, svc, req.Image) {
		return nil
	}
	p := newTransfers(std.err, !showsTerminal(std.err))
	defer p.end()
	_, err := images.PullImage(ctx, hutch.PullRequest{Image: req.Image, Pull: cmp.Or(req.Pull, hutch.PullMissing)}, p.show)
	req.Pull = hutch.PullMissing
	return err
}

// loadFirst sends the archive or folder that a new sandbox's request names as its image, and puts the id of the image
// into the request.
func loadFirst(ctx context.Context, images hutch.Images, req *hutch.CreateRequest, path string) error {
	if path == "" || path == "-" {
		return usageError{fmt.Errorf("--image %s names no file: write oci:FOLDER or docker-archive:FILE; an archive on the standard input is read by `hutch image load`", req.Image)}
	}
	in, err := openArchive(nil, path)
	if err != nil {
		return err
	}
	defer in.Close()
	list, err := images.LoadImages(ctx, "", in)
	if err != nil {
		return fmt.Errorf("load %s: %w", req.Image, err)
	}
	if len(list) != 1 {
		return hutch.Errorf(hutch.Invalid, "%s holds %d images, which are loaded now: choose one with `hutch image ls`, and give its id or name with --image", path, len(list)).Naming(hutch.AboutField, "image")
	}
	req.Image, req.Pull = list[0].ID, hutch.PullMissing
	return nil
}

// isTemplate reports whether the server has a template with the name of an image.
func isTemplate(ctx context.Context, svc hutch.Service, image string) bool {
	if hutch.CheckTemplateName(image) != nil {
		return false
	}
	list, err := svc.Snapshots(ctx)
	return err == nil && slices.ContainsFunc(list, func(s hutch.Snapshot) bool {
		return s.Template != nil && s.HasName(image)
	})
}

// sameImage reports whether a sandbox's image has the given reference. The sandbox keeps the full name and the digest.
func sameImage(has, want string) bool {
	began, err := oci.ParseReference(has)
	if err != nil {
		return false
	}
	asked, err := oci.ParseReference(want)
	switch {
	case err != nil || asked.Digest() != "" && asked.Digest() != began.Digest():
		return false
	case asked.Repository() == "": // the image `host`, or an image named only by its digest
		return asked.IsHost() == began.IsHost()
	}
	beganName, _, _ := strings.Cut(began.String(), "@")
	askedName, _, _ := strings.Cut(asked.String(), "@")
	return beganName == askedName
}
