package images

import (
	"hutch"
	"hutch/internal/oci"
)

// record returns an image as the API shows it.
func record(img oci.Image) hutch.Image {
	v := hutch.Image{
		ID: img.Digest, Names: []string{}, Owner: img.Owner, Shared: img.Owner == "", Size: img.Size,
		PulledAt: img.Added.UTC(), UsedAt: img.Used.UTC(), Architecture: img.Architecture, Layers: []string{},
		Config: hutch.ImageConfig{
			Env: img.Config.Env, WorkingDir: img.Config.WorkingDir, User: img.Config.User,
			Entrypoint: img.Config.Entrypoint, Command: img.Config.Cmd, Labels: img.Config.Labels,
			ExposedPorts: img.Config.ExposedPorts, StopSignal: img.Config.StopSignal, Healthcheck: healthcheck(img.Config),
		},
	}
	if !img.Created.IsZero() {
		created := img.Created.UTC()
		v.CreatedAt = &created
	}
	for _, ref := range img.References {
		v.Names = append(v.Names, ref.String())
	}
	for _, layer := range img.Layers {
		v.Layers = append(v.Layers, layer.Digest)
	}
	return v
}

func records(list []oci.Image) []hutch.Image {
	all := make([]hutch.Image, len(list))
	for i, img := range list {
		all[i] = record(img)
	}
	return all
}
