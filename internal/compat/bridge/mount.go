package bridge

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"strings"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/pipe"
)

// A mount puts the files of a volume of Hutch into a folder of a running sandbox. The original mounts a bucket with
// FUSE; here neither a credential nor FUSE is inside. The files are copied in at the mount. Files of a writable mount
// are copied back at the unmount, and before the sandbox is deleted over the bridge. A label of the sandbox records
// each mount: only the owner of a sandbox can write its labels.
const (
	mountLabel = "cf-mount:" // and the path
	readOnly   = "ro:"       // and the volume
	writable   = "rw:"
)

// mountRequest is the body of a mount.
type mountRequest struct {
	Bucket    *string       `json:"bucket"`
	Binding   *string       `json:"binding"`
	MountPath string        `json:"mountPath"`
	Options   *mountOptions `json:"options"`
}

type mountOptions struct {
	Endpoint        *string           `json:"endpoint"`
	ReadOnly        bool              `json:"readOnly"`
	Prefix          string            `json:"prefix"`
	Credentials     map[string]string `json:"credentials"`
	CredentialProxy bool              `json:"credentialProxy"`
	S3FS            []string          `json:"s3fsOptions"`
}

// volumesEndpoint begins an endpoint that means the server's own volumes.
const volumesEndpoint = "hutch:"

// volume returns the name of the volume, or an error that says why the mount has no volume.
func (m mountRequest) volume() (string, error) {
	invalid := func(text string) (string, error) { return "", hutch.Errorf(hutch.Invalid, "%s", text) }
	switch {
	case m.Bucket != nil && *m.Bucket == "":
		return invalid("bucket must be a non-empty string")
	case m.MountPath == "":
		return invalid("mountPath must be a non-empty string")
	case m.MountPath[0] != '/':
		return invalid("mountPath must be an absolute path (start with /)")
	case path.Clean(m.MountPath) == "/":
		return invalid("mountPath must not resolve to / (filesystem root)")
	case m.Options == nil:
		return invalid("options must be an object")
	case m.Binding != nil && *m.Binding == "":
		return invalid("binding must be a non-empty string when provided")
	case m.Binding != nil && m.Options.Endpoint != nil:
		return invalid("Provide either binding or options.endpoint, not both")
	}
	if err := m.Options.check(); err != nil {
		return "", err
	}
	name := m.Binding
	switch {
	case m.Options.Endpoint != nil && m.Bucket == nil:
		return invalid("bucket must be a non-empty string for remote mounts")
	case m.Options.Endpoint != nil:
		name = m.Bucket
	case name == nil:
		return invalid("binding must be a non-empty string for R2 binding mounts")
	}
	return *name, hutch.CheckVolume(*name)
}

// check refuses the options that volumes do not have.
func (o mountOptions) check() error {
	lacks := func(name, why string) error {
		return hutch.Errorf(hutch.Unsupported, "options.%s: %s", name, why).Naming(hutch.AboutField, name)
	}
	switch {
	case o.Endpoint != nil && !strings.HasPrefix(*o.Endpoint, volumesEndpoint):
		return lacks("endpoint", "this server mounts its own volumes, not buckets: give the endpoint hutch:volumes and the volume's name as the bucket")
	case strings.Trim(o.Prefix, "/") != "":
		return lacks("prefix", "a volume is mounted as a whole: leave it out")
	case len(o.Credentials) > 0:
		return lacks("credentials", "a volume needs none: leave them out")
	case o.CredentialProxy:
		return lacks("credentialProxy", "a volume needs no credentials: leave it out")
	case len(o.S3FS) > 0:
		return lacks("s3fsOptions", "volumes are not mounted with s3fs: leave them out")
	}
	return nil
}

func (h *Handler) mount(w http.ResponseWriter, r *http.Request, id string) {
	var m mountRequest
	err := compat.ReadJSON(w, r, &m)
	var name string
	if err == nil {
		name, err = m.volume()
	}
	if err == nil && h.volumes == nil {
		err = errNoVolumes
	}
	if err == nil {
		err = compat.OnFirstUse(r.Context(), h.svc, id, func() error {
			return h.mountVolume(r.Context(), id, name, path.Clean(m.MountPath), m.Options.ReadOnly)
		})
	}
	h.done(w, r, err, codeMount)
}

var errNoVolumes = hutch.Errorf(hutch.Unsupported, "mount: this server has no volumes; one that hutch serve runs has")

func (h *Handler) mountVolume(ctx context.Context, id, name, at string, ro bool) error {
	labels, err := h.labels(ctx, id)
	if err != nil {
		return err
	}
	if labels[mountLabel+at] != "" {
		return hutch.Errorf(hutch.Conflict, "mount failed: something is mounted at %s already: unmount it first", at)
	}
	if err := h.empty(ctx, id, at); err != nil {
		return err
	}
	if err := (hutch.VolumeMount{Name: name, Path: at}).Check(); err != nil {
		return err
	}
	err = pipe.Through(func(w io.Writer) error { return h.volumes.ReadVolume(ctx, name, "", w) },
		func(r io.Reader) error {
			return h.svc.Unpack(ctx, id, hutch.UnpackRequest{Dir: inside(at), Format: hutch.Tar}, r)
		})
	if err != nil {
		return err
	}
	kind := writable
	if ro {
		kind = readOnly
	}
	return h.relabel(ctx, id, func(labels map[string]string) { labels[mountLabel+at] = kind + name })
}

// relabel changes labels of a sandbox. Changes wait for each other, because the service replaces all labels at once.
func (h *Handler) relabel(ctx context.Context, id string, change func(labels map[string]string)) error {
	name := compat.Owner(ctx) + "/" + id
	if err := h.labelling.Take(ctx, name); err != nil {
		return err
	}
	defer h.labelling.Put(name)
	labels, err := h.labels(ctx, id)
	if err != nil {
		return err
	}
	change(labels)
	_, err = h.svc.Update(ctx, id, hutch.UpdateRequest{Labels: labels})
	return err
}

// empty refuses a folder that has files: the unmount would remove them.
func (h *Handler) empty(ctx context.Context, id, at string) error {
	taken := hutch.Errorf(hutch.Conflict, "mount failed: %s is not an empty folder: choose another mountPath", at)
	err := h.svc.ListFiles(ctx, id, hutch.ListRequest{Path: inside(at), Hidden: true}, func(hutch.FileInfo) error { return taken })
	switch {
	case compat.Missing(err), errors.Is(err, error(taken)):
		return err
	case hutch.KindOf(err) == hutch.NotFound:
		return nil
	}
	return err
}

func (h *Handler) unmount(w http.ResponseWriter, r *http.Request, id string) {
	var body struct {
		MountPath string `json:"mountPath"`
	}
	err := compat.ReadJSON(w, r, &body)
	at := path.Clean(body.MountPath)
	switch {
	case err != nil:
	case body.MountPath == "":
		err = hutch.Errorf(hutch.Invalid, "mountPath must be a non-empty string")
	case body.MountPath[0] != '/':
		err = hutch.Errorf(hutch.Invalid, "mountPath must be an absolute path (start with /)")
	case at == "/":
		err = hutch.Errorf(hutch.Invalid, "mountPath must not resolve to / (filesystem root)")
	case h.volumes == nil:
		err = errNoVolumes
	default:
		err = h.unmountVolume(r.Context(), id, at)
	}
	h.done(w, r, err, codeUnmount)
}

func (h *Handler) unmountVolume(ctx context.Context, id, at string) error {
	labels, err := h.labels(ctx, id)
	if err != nil && !compat.Missing(err) {
		return err
	}
	mounted := labels[mountLabel+at]
	if mounted == "" {
		return hutch.Errorf(hutch.Conflict, "unmount failed: No active mount found at path: %s", at)
	}
	if err := h.saveMount(ctx, id, at, mounted); err != nil {
		return err
	}
	if err := h.svc.Delete(ctx, id, inside(at), true); err != nil && hutch.KindOf(err) != hutch.NotFound {
		return err
	}
	return h.relabel(ctx, id, func(labels map[string]string) { delete(labels, mountLabel+at) })
}

// saveMounts copies the files of writable mounts back to their volumes.
func (h *Handler) saveMounts(ctx context.Context, id string) error {
	labels, err := h.labels(ctx, id)
	if err != nil || h.volumes == nil {
		return err
	}
	for label, mounted := range labels {
		if at, ok := strings.CutPrefix(label, mountLabel); ok {
			if err := h.saveMount(ctx, id, at, mounted); err != nil {
				return err
			}
		}
	}
	return nil
}

// saveMount copies the files of a mount that can write back into its volume.
func (h *Handler) saveMount(ctx context.Context, id, at, mounted string) error {
	name, ok := strings.CutPrefix(mounted, writable)
	if !ok {
		return nil
	}
	return pipe.Through(func(w io.Writer) error {
		return h.svc.Pack(ctx, id, hutch.PackRequest{Dir: inside(at), Format: hutch.Tar}, w)
	}, func(r io.Reader) error {
		_, err := h.volumes.WriteVolume(ctx, name, "", r)
		return err
	})
}

// labels returns a copy of the labels of one of the caller's own sandboxes. It does not return those of a shared
// sandbox: another owner has written them, and they name that owner's volumes. It wakes no sandbox.
func (h *Handler) labels(ctx context.Context, id string) (map[string]string, error) {
	list, err := h.svc.Sandboxes(ctx, hutch.Filter{ID: id, Brief: true})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, hutch.Errorf(hutch.NotFound, "there is no sandbox %q", id).Naming(hutch.AboutSandbox, id)
	}
	if list[0].Owner != compat.Owner(ctx) {
		return nil, hutch.Errorf(hutch.Denied, "the sandbox %q is shared with you: only its owner mounts volumes, and deletes it", id).Naming(hutch.AboutSandbox, id)
	}
	labels := maps.Clone(list[0].Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return labels, nil
}

// inside returns a clean absolute path in the form that the service expects: relative if it is in the workspace.
func inside(at string) string {
	if p, ok := inWorkspace(at); ok {
		return p
	}
	return at
}
