package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"hutch/internal/driver"
	"hutch/internal/image"
)

// Usage implements driver.Instance. Only root can measure the written files.
func (i *instance) Usage(ctx context.Context) (driver.Usage, error) {
	answer, err := i.api.ContainerStats(ctx, i.record.Container, client.ContainerStatsOptions{})
	if err != nil {
		return driver.Usage{}, fmt.Errorf("read the use of sandbox %s: %w", i.id, err)
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return driver.Usage{}, fmt.Errorf("read the use of sandbox %s: %w", i.id, err)
	}
	u := driver.Usage{
		CPUSeconds: time.Duration(s.CPUStats.CPUUsage.TotalUsage).Seconds(),
		Memory:     memoryInUse(s.MemoryStats), MemoryPeak: int64(s.MemoryStats.MaxUsage), PIDs: int(s.PidsStats.Current),
	}
	found, err := i.api.ContainerInspect(ctx, i.record.Container, client.ContainerInspectOptions{})
	if err == nil && found.Container.State != nil && found.Container.State.OOMKilled {
		u.OOMKills = 1 // the engine reports only that there were some
	}
	u.Disk = i.disk(ctx)
	return u, nil
}

// memoryInUse returns the memory of a container without cached files, because the kernel can drop those. Control
// groups of version 1 have figures with and without those of child groups.
func memoryInUse(m container.MemoryStats) int64 {
	prefix := ""
	if _, v1 := m.Stats["total_inactive_file"]; v1 {
		prefix = "total_"
	}
	cached := m.Stats[prefix+"inactive_file"] + m.Stats[prefix+"active_file"]
	return int64(m.Usage - min(m.Usage, cached))
}

// disk returns the size of the written files. It measures at our mount points, which no program inside can move.
func (i *instance) disk(ctx context.Context) (sum int64) {
	p, err := i.process(ctx)
	if err != nil {
		return 0
	}
	defer p.Close()
	for _, dir := range image.Writable {
		var st unix.Statfs_t
		if unix.Statfs(fmt.Sprintf("/proc/%d/root%s", p.pid, dir), &st) == nil && st.Type == unix.TMPFS_MAGIC && !p.dead() {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}
