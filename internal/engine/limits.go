package engine

import (
	"cmp"
	"context"
	"slices"

	"hutch"
	"hutch/internal/driver"
)

// checkLimits refuses limits above the ceilings of this server.
func (dr drafter) checkLimits(l hutch.Limits) error {
	most := dr.opt.MaxLimits
	return cmp.Or(within("cpu", "cores", l.CPU, most.CPU), within("memory", "MiB", l.Memory, most.Memory),
		within("disk", "MiB", l.Disk, most.Disk), within("pids", "processes", l.PIDs, most.PIDs),
		within("processes", "processes", l.Processes, most.Processes))
}

// InstanceTypes implements hutch.Service.
func (e *Engine) InstanceTypes(context.Context) ([]hutch.InstanceType, error) {
	return slices.Clone(e.opt.Types), nil
}

// applyType sets missing limits of a request to those of its instance type, and refuses a type above this server's
// ceilings.
func (dr drafter) applyType(req *hutch.CreateRequest) error {
	if req.InstanceType == "" {
		return nil
	}
	t, err := hutch.FindInstanceType(dr.opt.Types, req.InstanceType)
	if err != nil {
		return err
	}
	given := req.Limits
	req.Limits = t.Fill(given)
	if err := dr.checkLimits(req.Limits); err != nil && dr.checkLimits(given) == nil {
		return hutch.Errorf(hutch.Invalid, "the instance type %s is larger than this server allows: %v", t.Name, err).Naming(hutch.AboutField, "instanceType")
	}
	return nil
}

// within refuses a limit above the server's maximum; a maximum of 0 means no limit.
func within[N int | float64](limit, unit string, asked, most N) error {
	if most <= 0 || asked <= most {
		return nil
	}
	return hutch.Errorf(hutch.Invalid, "limits.%s is %v %s, and this server gives a sandbox at most %v: ask for less, or have its administrator allow more (hutch serve --max-%s)",
		limit, asked, unit, most, limit).With("limit", limit)
}

// fillLimits sets the limits that a request leaves out to the driver's defaults, but never above the ceilings of this
// server.
func fillLimits(l, most hutch.Limits, d driver.Defaults) hutch.Limits {
	usual := d.Limits
	fill(&l.CPU, usual.CPU, most.CPU)
	fill(&l.Memory, usual.Memory, most.Memory)
	if d.FilesInMemory {
		usual.Disk = l.Memory / 2
	}
	fill(&l.Disk, usual.Disk, most.Disk)
	fill(&l.PIDs, usual.PIDs, most.PIDs)
	fill(&l.Processes, usual.Processes, most.Processes)
	return l
}

func fill[N int | float64](limit *N, usual, most N) {
	if *limit != 0 {
		return
	}
	*limit = usual
	if most > 0 {
		*limit = min(usual, most)
	}
}
