package inside

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hutch/internal/linux/mount"
)

// applySettings writes the kernel settings of the instance's namespaces, through the instance's /proc. After that,
// /proc/sys becomes read only, so that no program inside can write them.
func applySettings(c Config, proc mount.Tree) error {
	settings := map[string]string{"net/ipv4/ip_unprivileged_port_start": "0"} // the user can serve at port 80
	// If the agent has its own id, each of the two ids gets half of the limit.
	parts := 2
	if c.Shared {
		parts = sharedBy
	}
	for _, name := range []string{"instances", "watches"} {
		if most := readSetting(proc, "fs/inotify/max_user_"+name); most > 0 {
			settings["user/max_inotify_"+name] = strconv.Itoa(max(most/parts, 1))
		}
	}
	for name, value := range settings {
		if err := writeSetting(proc, name, value); err != nil {
			return fmt.Errorf("set %s to %s: %w", name, value, err)
		}
	}
	return nil
}

// writeSetting writes a setting. If the kernel does not have the setting, it does nothing.
func writeSetting(proc mount.Tree, name, value string) error {
	fd, err := unix.Openat(int(proc), "sys/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// readSetting reads a setting. It returns 0 if the kernel does not have the setting. It reads the instance's /proc,
// because the image can cover the host's.
func readSetting(proc mount.Tree, name string) int {
	fd, err := unix.Openat(int(proc), "sys/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	text := make([]byte, 32)
	got, _ := unix.Read(fd, text)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text[:max(got, 0)])))
	return n
}
