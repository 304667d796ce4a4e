package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"hutch/internal/image"
)

// A container needs a Docker image. For a host image, that Docker image holds the skeleton: its links, its /etc and the
// mount points, without the folders that are bound over them. For any other image it holds all files of the image, from
// Hutch's store, so that the engine does not contact a registry.

// private is a folder that only root can enter. socketDir is the folder in it for the socket between daemon and agent.
const private, socketDir = "/.hutch/private", "/.hutch/private/run"

// image returns the name of the Docker image with a skeleton. It makes the Docker image if the engine does not have it.
func (d *Driver) image(ctx context.Context, api *client.Client, root image.Root) (string, error) {
	root.Files = over(root)
	name := imageName(root)
	if err := d.images.Take(ctx, name); err != nil {
		return "", err
	}
	defer d.images.Put(name)
	_, err := api.ImageInspect(ctx, name)
	if !errdefs.IsNotFound(err) {
		return name, err
	}
	if root.EROFS != "" {
		sweepImages(ctx, api, false) // to free space; if it fails, the next start removes them
		return name, d.importImage(ctx, api, name, root.EROFS, func(w io.Writer) error { return writeImage(w, root) })
	}
	return name, d.importImage(ctx, api, name, root.Dir, func(w io.Writer) error { return writeSkeleton(w, root.Dir) })
}

// imageName returns the name of the Docker image, which is derived from the skeleton's folder. A skeleton never
// changes: when the host changes, a new skeleton is made in another folder. So drivers with different state folders
// share the Docker image.
//
// For other images, the name is derived from the EROFS file, which never changes either, and from the files that a
// sandbox has over it: see [over].
func imageName(root image.Root) string {
	if root.EROFS != "" {
		over, _ := json.Marshal(root.Files) // text and numbers can always be encoded
		sum := sha256.Sum256(append([]byte(root.EROFS+"\x00"), over...))
		return "hutch-image:" + hex.EncodeToString(sum[:16])
	}
	sum := sha256.Sum256([]byte(root.Dir))
	return "hutch-host:" + filepath.Base(filepath.Dir(root.Dir)) + "-" + hex.EncodeToString(sum[:6])
}

// over returns the files that sandboxes of an image have over its EROFS file. They are the same for every user that
// commands can run as, because callers choose the user, and the engine must not keep a copy for each user. The files
// are read only, so the owner of a working folder matters little. A home that the image lacks is left out, because the
// engine makes the mount point for a home in memory.
func over(root image.Root) []image.File {
	user := root.Account()
	own := []string{root.Workdir(), image.Workspace, image.Data}
	needed := append([]string{"/proc", "/sys", "/dev", image.SocketDir, "/tmp", "/var/tmp"}, own...)
	for _, f := range root.Files {
		if !f.Mode.IsDir() {
			needed = append(needed, f.Path)
		}
	}
	var files []image.File
	for _, f := range root.Files {
		leads := func(path string) bool {
			return path == f.Path || strings.HasPrefix(path, strings.TrimSuffix(f.Path, "/")+"/")
		}
		if !slices.ContainsFunc(needed, leads) {
			continue
		}
		if slices.Contains(own, f.Path) && f.UID == user.UID && f.GID == user.GID {
			f.UID, f.GID = 0, 0
		}
		files = append(files, f)
	}
	return files
}

// noTag is the name that older engines list for an image without a name.
const noTag = "<none>:<none>"

// sweepImages removes the images whose skeleton or file is gone. With nameless, it also removes images that lost their
// name to a second import; an image that is being imported has no name yet. It keeps images with other names, because
// an image that someone else made from ours has its label, too. The engine refuses to remove an image that a container
// uses.
func sweepImages(ctx context.Context, api *client.Client, nameless bool) error {
	all, err := api.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", skeletonLabel)})
	if err != nil {
		return err
	}
	var errs error
	for _, img := range all.Items {
		foreign := func(tag string) bool {
			return tag != noTag && !strings.HasPrefix(tag, "hutch-host:") && !strings.HasPrefix(tag, "hutch-image:")
		}
		if slices.ContainsFunc(img.RepoTags, foreign) || img.ParentID != "" {
			continue
		}
		named := len(img.RepoTags) > 0 && img.RepoTags[0] != noTag
		if !named && !nameless {
			continue
		}
		if _, err := os.Stat(img.Labels[skeletonLabel]); named && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		_, err := api.ImageRemove(ctx, img.ID, client.ImageRemoveOptions{})
		if err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// importImage makes an image from an archive. origin is its source.
func (d *Driver) importImage(ctx context.Context, api *client.Client, name, origin string, write func(io.Writer) error) error {
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(write(w)) }()
	label, err := json.Marshal(origin)
	if err != nil {
		return err
	}
	source := client.ImageImportSource{Source: r, SourceName: "-"}
	answer, err := api.ImageImport(ctx, source, name, client.ImageImportOptions{Changes: []string{"LABEL " + skeletonLabel + "=" + string(label)}})
	if err != nil {
		return fmt.Errorf("import an image: %w", err)
	}
	defer answer.Close()
	return importFailure(answer)
}

// importFailure reads the engine's progress messages to the end.
func importFailure(r io.Reader) error {
	for messages := json.NewDecoder(r); ; {
		var m struct{ Error string }
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("import an image: %w", err)
		}
		if m.Error != "" {
			return fmt.Errorf("import an image: %s", m.Error)
		}
	}
}

// writeImage writes the root of an image, and the folder of the socket between daemon and agent.
func writeImage(out io.Writer, root image.Root) error {
	root.Files = slices.Clone(root.Files)
	for _, path := range []string{private, socketDir} {
		root.Files = append(root.Files, image.File{Path: path, Mode: fs.ModeDir | 0o700})
	}
	return root.WriteTar(out)
}

// writeSkeleton writes a skeleton as a tar archive in which everything belongs to root.
func writeSkeleton(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return add(w, dir, path, e)
	})
	for _, path := range []string{private, socketDir} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "." + path + "/", Mode: 0o700}))
	}
	return errors.Join(err, w.Close())
}

func add(w *tar.Writer, dir, path string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = "."+path[len(dir):], 0, 0, "", ""
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
