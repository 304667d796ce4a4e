package e2b

import (
	"net/http"

	"hutch"
)

// volume is a volume of Hutch: its name is its id. Clients use the token for the content, which this server does not
// serve.
type volume struct {
	VolumeID string  `json:"volumeID"`
	Name     string  `json:"name"`
	Token    *string `json:"token,omitempty"`
}

func volumeOf(v hutch.Volume) volume {
	token := ""
	return volume{v.Name, v.Name, &token}
}

// volumes returns the verbs on volumes.
func (s *Server) volumes() (hutch.Volumes, error) {
	if s.opt.Volumes == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "this server has no volumes")
	}
	return s.opt.Volumes, nil
}

func (s *Server) createVolume(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Name string `json:"name"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	all, err := s.volumes()
	if err != nil {
		return 0, nil, err
	}
	made, err := all.CreateVolume(r.Context(), hutch.VolumeRequest{Name: req.Name})
	return http.StatusCreated, volumeOf(made), err
}

func (s *Server) listVolumes(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	all, err := s.volumes()
	if err != nil {
		return 0, nil, err
	}
	found, err := all.Volumes(r.Context())
	list := make([]volume, len(found))
	for i, v := range found {
		list[i] = volume{VolumeID: v.Name, Name: v.Name}
	}
	return http.StatusOK, list, err
}

func (s *Server) getVolume(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	all, err := s.volumes()
	if err != nil {
		return 0, nil, err
	}
	found, err := all.Volume(r.Context(), r.PathValue("id"))
	return http.StatusOK, volumeOf(found), err
}

func (s *Server) deleteVolume(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	all, err := s.volumes()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, all.DeleteVolume(r.Context(), r.PathValue("id"), false)
}
