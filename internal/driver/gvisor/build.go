package gvisor

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
)

const module = "gvisor.dev/gvisor"

// Build implements driver.Restorer: gVisor reads only memory of its own version, and saved memory contains the agent.
func (d *Driver) Build() string { return d.build() }

func readBuild(runsc, agent string) string {
	version := "unknown"
	if info, err := buildinfo.ReadFile(runsc); err == nil {
		for _, dep := range info.Deps {
			if dep.Path == module {
				version = dep.Version
			}
		}
	}
	program, _ := os.ReadFile(agent) // without it there are no sandboxes
	return fmt.Sprintf("gVisor %s, agent %.6x", version, sha256.Sum256(program))
}
