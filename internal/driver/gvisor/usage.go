package gvisor

import (
	"context"

	"hutch/internal/driver"
)

// Usage implements driver.Instance.
func (i *instance) Usage(ctx context.Context) (driver.Usage, error) {
	var u driver.Usage
	if i.group != nil {
		g, err := i.group.Usage()
		if err != nil {
			return u, err
		}
		u = driver.Usage{CPUSeconds: g.CPU.Seconds(), Memory: g.Memory, MemoryPeak: g.MemoryPeak, OOMKills: g.OOMKills}
	}
	return u, nil
}
