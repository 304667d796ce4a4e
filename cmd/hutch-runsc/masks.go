package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/linux/mount"
)

// The image masks names below the host's folders, such as /usr/pip.conf. A name that exists when a sandbox is created
// is covered by a mount of the bundle. The others are hidden here, so that a file that the host gets later is not
// visible: the gofer shows a folder with such names through an overlay, whose upper layer marks them as deleted.

// marksPoint is a folder for the layers of overlays, outside of the served files.
const marksPoint = "/marks"

// hideLater hides the masks of the bundle that no mount covers. A kernel without such overlays (before 5.11, for an
// ordinary user) shows files that appear later.
func hideLater(spec *specs.Spec) error {
	var masks []string
	if text := spec.Annotations[contract.Masks]; text == "" {
		return nil
	} else if err := json.Unmarshal([]byte(text), &masks); err != nil {
		return fmt.Errorf("read the annotation %s: %w", contract.Masks, err)
	}
	hidden := uncovered(spec.Mounts, masks)
	if len(hidden) == 0 {
		return nil
	}
	bench, err := mount.New("tmpfs", mount.NoSUID|mount.NoDev|mount.NoExec, [2]string{"mode", "0755"}, [2]string{"size", "1m"})
	if err != nil {
		return err
	}
	defer bench.Close()
	if err := os.Mkdir(marksPoint, 0o755); err != nil {
		return err
	}
	if err := bench.AttachTo(marksPoint); err != nil {
		return err
	}
	defer unix.Unmount(marksPoint, unix.MNT_DETACH)
	for n, m := range spec.Mounts {
		if names := hidden[m.Destination]; len(names) > 0 {
			if err := overlay(bench, strconv.Itoa(n), m.Destination, names); err != nil {
				return fmt.Errorf("hide names below %s: %w", m.Destination, err)
			}
		}
	}
	return nil
}

// uncovered returns the masks that no mount covers, by the mount that shows them. Their paths are relative to this
// mount.
func uncovered(mounts []specs.Mount, masks []string) map[string][]string {
	hidden := map[string][]string{}
	for _, mask := range masks {
		shower := ""
		for _, m := range mounts { // the last one counts
			if m.Type == "bind" && (mask == m.Destination || strings.HasPrefix(mask, m.Destination+"/")) {
				shower = m.Destination
			}
		}
		if shower != "" && shower != mask {
			hidden[shower] = append(hidden[shower], mask[len(shower)+1:])
		}
	}
	return hidden
}

// overlay shows a folder of the image without some names, with all mounts below it.
func overlay(bench mount.Tree, name, target string, hidden []string) error {
	served := servedRoot + target
	inner, err := mountsBelow(served)
	if err != nil {
		return err
	}
	low, top := name+".low", name+".top"
	for _, dir := range []string{low, top} {
		if err := unix.Mkdirat(int(bench), dir, 0o755); err != nil {
			return err
		}
	}
	shown, err := mount.CloneOne(served, 0)
	if err != nil {
		return err
	}
	defer shown.Close()
	if err := bench.Attach(shown, "/"+low); err != nil {
		return err
	}
	if err := mount.Conceal(int(bench), low, top, hidden); err != nil {
		return err
	}
	made, err := mount.New("overlay", mount.ReadOnly|mount.NoSUID|mount.NoDev,
		[2]string{"lowerdir", filepath.Join(marksPoint, top) + ":" + filepath.Join(marksPoint, low)}, [2]string{"xino", "on"})
	if err != nil {
		log.Warningf("names that the host gets later below %s can be seen: %v", target, err)
		return nil
	}
	defer made.Close()
	return replace(served, made, inner)
}

// replace mounts a tree over a path, and moves the mounts below the path onto it.
func replace(path string, made mount.Tree, inner []string) error {
	trees := make([]mount.Tree, len(inner))
	for i, below := range inner {
		t, err := mount.Clone(below, 0)
		if err != nil {
			return err
		}
		defer t.Close()
		trees[i] = t
	}
	if err := made.AttachTo(path); err != nil {
		return err
	}
	for i, below := range inner {
		if err := trees[i].AttachTo(below); err != nil {
			return err
		}
	}
	return nil
}

// mountsBelow returns the outermost mount points below a path.
func mountsBelow(path string) (list []string, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			if point := unescape(fields[4]); strings.HasPrefix(point, path+"/") {
				list = append(list, point)
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	top := list[:0]
	for _, point := range list {
		if !slices.ContainsFunc(top, func(above string) bool { return strings.HasPrefix(point, above+"/") }) {
			top = append(top, point)
		}
	}
	return top, nil
}

// unescape undoes the kernel's escapes for blanks in mount points: \040 and the like.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
