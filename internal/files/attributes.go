package files

import (
	"strings"

	"golang.org/x/sys/unix"

	"hutch"
)

// userAttribute begins the names of attributes that the owner of a file chooses.
const userAttribute = "user."

// maxAttributes is how many bytes of a file's names together, and of each value, are read: a little more than
// hutch.CheckAttributes accepts.
const maxAttributes = 8 << 10

// maxValue is the longest value that Linux allows.
const maxValue = 64 << 10

// attributes reads the attributes of an open descriptor of any kind. A file system without attributes, and a file that
// the caller is not allowed to read, have none.
func attributes(fd int) map[string]string {
	at := "/proc/self/fd/" + itoa(fd)
	var names, value [maxAttributes]byte
	n, err := unix.Listxattr(at, names[:])
	if err != nil || n == 0 {
		return nil
	}
	found := map[string]string{}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		short, ok := strings.CutPrefix(name, userAttribute)
		if !ok {
			continue
		}
		n, err := unix.Getxattr(at, name, value[:])
		if err != nil {
			continue
		}
		found[short] = string(value[:n])
		if hutch.CheckAttributes(found) != nil {
			delete(found, short)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// setAttributes gives a new file its attributes.
func setAttributes(fd int, attributes map[string]string) error {
	for name, value := range attributes {
		err := unix.Fsetxattr(fd, userAttribute+name, []byte(value), 0)
		if err == unix.EOPNOTSUPP {
			return hutch.Errorf(hutch.Unsupported, "the file system of this path keeps no attributes of files: leave them out, or write elsewhere")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyAttributes gives a file the attributes of another one, if both file systems support them.
func copyAttributes(from, to int) {
	n, err := unix.Flistxattr(from, nil)
	if err != nil || n <= 0 {
		return
	}
	names, value := make([]byte, n), make([]byte, maxValue)
	if n, err = unix.Flistxattr(from, names); err != nil {
		return // meanwhile, attributes were added
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, userAttribute) {
			continue
		}
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
}

// attributes reads the attributes of a folder's entry, if it is still the same.
func (e *entry) attributes() map[string]string {
	fd, err := unix.Openat(e.dir, e.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Ino != e.st.Ino || st.Dev != e.st.Dev {
		return nil
	}
	return attributes(fd)
}
