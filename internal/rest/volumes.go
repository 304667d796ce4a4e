package rest

import (
	"io"
	"net/http"

	"hutch"
)

// volumeRoutes are the handlers of the verbs on volumes.
type volumeRoutes struct{ *Handler }

func (h volumeRoutes) create(r *http.Request, req hutch.VolumeRequest) (hutch.Volume, error) {
	return h.volumes.CreateVolume(r.Context(), req)
}

func (h volumeRoutes) list(w http.ResponseWriter, r *http.Request) {
	list, err := h.volumes.Volumes(r.Context())
	reply(h.Handler, w, r)(orEmpty(list), err)
}

func (h volumeRoutes) inspect(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.volumes.Volume(r.Context(), r.PathValue("volume")))
}

func (h volumeRoutes) delete(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "force")
	force := false
	if err == nil {
		force, err = flag(q, "force")
	}
	if err == nil {
		err = h.volumes.DeleteVolume(r.Context(), r.PathValue("volume"), force)
	}
	h.done(w, r, err)
}

func (h volumeRoutes) sync(w http.ResponseWriter, r *http.Request) {
	reply(h.Handler, w, r)(h.volumes.SyncVolume(r.Context(), r.PathValue("volume")))
}

// pathOf returns the parameter path of a request, which is a path in a volume; "" means the whole volume.
func pathOf(r *http.Request) (string, error) {
	q, err := query(r, "path")
	if err != nil {
		return "", err
	}
	return q.Get("path"), hutch.CheckVolumePath(q.Get("path"))
}

func (h volumeRoutes) read(w http.ResponseWriter, r *http.Request) {
	path, err := pathOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	fileRoutes(h).download(w, r, "application/x-tar", func(a io.Writer) error {
		return h.volumes.ReadVolume(r.Context(), r.PathValue("volume"), path, a)
	})
}

func (h volumeRoutes) write(w http.ResponseWriter, r *http.Request) {
	path, err := pathOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(h.Handler, w, r)(h.volumes.WriteVolume(r.Context(), r.PathValue("volume"), path, fileRoutes(h).upload(w, r)))
}

func (h volumeRoutes) save(w http.ResponseWriter, r *http.Request) {
	list, err := h.volumes.SaveVolumes(r.Context(), r.PathValue("id"))
	reply(h.Handler, w, r)(orEmpty(list), err)
}
