package jupyter

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat"
)

// A place identifies a kernel: the two halves of its id.
type place struct {
	box  string // 16 hexadecimal digits that name the sandbox
	code string // 16 digits that name the context
}

const half = 16 // digits

// parse reads the id of a kernel, which looks like a UUID.
func parse(id string) (place, bool) {
	digits := strings.ReplaceAll(id, "-", "")
	if len(digits) != 2*half || strings.Trim(digits, "0123456789abcdef") != "" {
		return place{}, false
	}
	p := place{digits[:half], digits[half:]}
	return p, p.String() == id
}

// String returns the id of the kernel.
func (p place) String() string {
	s := p.box + p.code
	return strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")
}

func (p place) sandbox() string { return "jupyter-" + p.box }
func (p place) context() string { return "jupyter-" + p.code }

// Labels of a sandbox with kernels. Each kernel has another label: its name is kernelLabel and half of the kernel's id,
// and its value is an entry.
const (
	markLabel   = "jupyter"
	mark        = "kernels"
	userLabel   = "jupyter-user" // label of the sandbox of a user, which outlives its kernels
	kernelLabel = "jupyter-kernel-"
)

// entry is the record of a kernel in its label.
type entry struct {
	Name    string   `json:"name"`
	Session *session `json:"session,omitempty"`
}

// maxKernels is how many kernels a sandbox has at most: each has a label.
const maxKernels = 61

// newHalf returns random digits.
func newHalf() string {
	b := make([]byte, half/2)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

const maxUser = 200 // bytes of the name of a user

// userOf returns the user that a request names, or "": the first of header, parameter and KERNEL_USERNAME, which
// clients of Jupyter's gateways send.
func userOf(r *http.Request, env map[string]string) (string, error) {
	if len(r.Header.Values("X-User-Id")) > 1 || len(r.URL.Query()["user"]) > 1 {
		return "", hutch.Errorf(hutch.Invalid, "the request names a user twice: send one X-User-Id, or one parameter user")
	}
	user := cmp.Or(r.Header.Get("X-User-Id"), r.URL.Query().Get("user"), env["KERNEL_USERNAME"])
	if len(user) > maxUser {
		return "", hutch.Errorf(hutch.Invalid, "the name of the user has %d bytes: at most %d are allowed", len(user), maxUser)
	}
	return user, nil
}

// boxOf returns the half of an id that names the sandbox of a user.
func boxOf(user string) string {
	sum := sha256.Sum256([]byte("jupyter user\x00" + user))
	return hex.EncodeToString(sum[:half/2])
}

// How long a sandbox is kept without a message to its kernels.
const (
	keepKernel = 24 * time.Hour
	keepUser   = 30 * 24 * time.Hour
)

func keepFor(sb hutch.Sandbox) time.Duration {
	if sb.Labels[userLabel] != "" {
		return keepUser
	}
	return keepKernel
}

// request is a client's request for a new kernel.
type request struct {
	Name string            `json:"name"`
	Path string            `json:"path"` // path of the notebook, on the client's machine
	Env  map[string]string `json:"env"`
}

// create makes a kernel, with a session or without.
func (h *Handler) create(ctx context.Context, user string, req request, s *session) (known, error) {
	sp, err := specOf(cmp.Or(req.Name, defaultSpec))
	if err != nil {
		return known{}, err
	}
	p := place{newHalf(), newHalf()}
	labels := map[string]string{markLabel: mark}
	if user != "" {
		p.box, labels[userLabel] = boxOf(user), user
	}
	e := entry{sp.name, s}
	name, value := kernelLabel+p.code, e.text()
	labels[name] = value
	create := hutch.CreateRequest{ID: p.sandbox(), Image: cmp.Or(req.Env["KERNEL_IMAGE"], h.image), Labels: labels}
	create.Timeout = hutch.InSeconds(keepFor(hutch.Sandbox{Labels: labels}))
	sb, err := h.svc.Create(ctx, create)
	if err != nil {
		return known{}, err
	}
	if sb.Labels[name] != value {
		if len(kernelsIn(sb)) >= maxKernels {
			return known{}, hutch.Errorf(hutch.Exhausted, "the sandbox of the user %.60q has %d kernels, which is the most: delete one", user, maxKernels).With("limit", "kernels")
		}
		if sb, err = h.relabel(ctx, p, func(l map[string]string) {
			l[markLabel], l[name] = mark, value
			if user != "" {
				l[userLabel] = user
			}
		}); err != nil {
			return known{}, err
		}
	}
	k := known{place: p, entry: e, box: sb}
	if err := h.startContext(ctx, k, req.Env); err != nil {
		ctx, cancel := compat.Cleanup(ctx)
		defer cancel()
		if err := h.discard(ctx, k); err != nil {
			h.log.Warn("a kernel that could not start is left", "sandbox", p.sandbox(), "err", err)
		}
		return known{}, err
	}
	return k, nil
}

// contextIdle is how long the context of a kernel is kept without a run: longer than its sandbox.
const contextIdle = 2 * keepUser

// startContext starts the interpreter of a kernel.
func (h *Handler) startContext(ctx context.Context, k known, env map[string]string) error {
	sp, err := specOf(k.entry.Name)
	if err != nil {
		return err
	}
	_, err = h.svc.CreateContext(ctx, k.sandbox(), hutch.ContextRequest{ID: k.context(), Language: sp.language, Env: env, IdleTimeout: hutch.InSeconds(contextIdle)})
	return err
}

func (e entry) text() string {
	b, _ := json.Marshal(e) // strings can always be encoded
	return string(b)
}

// discard removes a kernel: its sandbox or, if the sandbox belongs to a user, only the kernel's part of it.
func (h *Handler) discard(ctx context.Context, k known) error {
	if k.box.Labels[userLabel] == "" {
		_, err := h.svc.Destroy(ctx, k.sandbox(), true)
		return err
	}
	if err := h.svc.DeleteContext(ctx, k.sandbox(), k.context()); err != nil {
		return err
	}
	_, err := h.relabel(ctx, k.place, func(l map[string]string) { delete(l, kernelLabel+k.code) })
	return err
}

// relabel changes the labels of a sandbox. Changes of one sandbox wait for each other.
func (h *Handler) relabel(ctx context.Context, p place, change func(map[string]string)) (hutch.Sandbox, error) {
	name := compat.Owner(ctx) + "/" + p.box
	if err := h.labelling.Take(ctx, name); err != nil {
		return hutch.Sandbox{}, err
	}
	defer h.labelling.Put(name)
	sb, err := h.svc.Sandbox(ctx, p.sandbox())
	if err != nil {
		return sb, err
	}
	labels := maps.Clone(sb.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	change(labels)
	return h.svc.Update(ctx, p.sandbox(), hutch.UpdateRequest{Labels: labels})
}

// known is a kernel that exists.
type known struct {
	place
	entry entry
	box   hutch.Sandbox
}

// all lists the kernels of a user or, for "", the kernels of every user.
func (h *Handler) all(ctx context.Context, user string) ([]known, error) {
	f := hutch.Filter{Labels: map[string]string{markLabel: mark}, Brief: true}
	if user != "" {
		f.ID = place{box: boxOf(user)}.sandbox()
	}
	boxes, err := h.boxes(ctx, f)
	var list []known
	for _, sb := range boxes {
		list = append(list, kernelsIn(sb)...)
	}
	return list, err
}

// boxes lists the caller's own sandboxes. Shared sandboxes are left out: they can have any labels, and a notebook must
// not run in them.
func (h *Handler) boxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	list, err := h.svc.Sandboxes(ctx, f)
	return slices.DeleteFunc(list, func(sb hutch.Sandbox) bool { return sb.Owner != compat.Owner(ctx) }), err
}

// kernelsIn reads the labels of a sandbox. Others can have written them.
func kernelsIn(sb hutch.Sandbox) (list []known) {
	box, ok := strings.CutPrefix(sb.ID, "jupyter-")
	for _, name := range slices.Sorted(maps.Keys(sb.Labels)) {
		code, found := strings.CutPrefix(name, kernelLabel)
		p, valid := parse(place{pad(box), pad(code)}.String())
		k := known{place: p, box: sb}
		if !ok || !found || !valid || p.box != box || p.code != code || json.Unmarshal([]byte(sb.Labels[name]), &k.entry) != nil {
			continue
		}
		if _, err := specOf(k.entry.Name); err == nil {
			list = append(list, k)
		}
	}
	return list
}

// pad gives text of strangers the length of half an id.
func pad(s string) string {
	if len(s) != half {
		return strings.Repeat("x", half)
	}
	return s
}

// find finds a kernel by its id, if the user can see it.
func (h *Handler) find(ctx context.Context, user, id string) (known, error) {
	missing := hutch.Errorf(hutch.NotFound, "Kernel does not exist: %.60s", id)
	p, ok := parse(id)
	if !ok || user != "" && p.box != boxOf(user) {
		return known{}, missing
	}
	boxes, err := h.boxes(ctx, hutch.Filter{ID: p.sandbox(), Brief: true})
	if err != nil {
		return known{}, err
	}
	for _, sb := range boxes {
		for _, k := range kernelsIn(sb) {
			if k.place == p {
				return k, nil
			}
		}
	}
	return known{}, missing
}

// touch postpones the end of a kernel's sandbox, and returns the end. If it fails, no other code is affected.
func (h *Handler) touch(ctx context.Context, sb hutch.Sandbox) *time.Time {
	keep := keepFor(sb)
	if sb.ExpiresAt == nil || time.Until(*sb.ExpiresAt) > keep-keep/24 { // if there is no end, the owner has removed it
		return sb.ExpiresAt
	}
	limit := hutch.InSeconds(keep)
	then, err := h.svc.Update(caller.Unmetered(ctx), sb.ID, hutch.UpdateRequest{Timeout: &limit})
	if err != nil {
		h.log.Debug("put off the end of a sandbox", "sandbox", sb.ID, "err", err)
		return sb.ExpiresAt
	}
	return then.ExpiresAt
}
