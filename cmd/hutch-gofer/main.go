// Hutch-gofer opens the files of an image for one gVisor sandbox. No person starts it: hutch-runsc becomes it, see
// package gofer. A starting sandbox also uses it to unmount /proc, which is faster than with hutch-runsc, a program of
// ten times the size.
package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"hutch/internal/driver/gvisor/gofer"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-gofer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("this program is started by hutch-runsc")
	case args[0] == "umount":
		return unmount(args[len(args)-1])
	}
	service, err := gofer.Decode(args[len(args)-1])
	if err != nil {
		return err
	}
	return service.Run()
}

// unmount waits for a byte on the only file that gVisor passes. The sandbox sends the byte when it has lost its own
// right to unmount.
func unmount(path string) error {
	if _, err := os.NewFile(3, "when").Read(make([]byte, 1)); err != nil {
		return err
	}
	return unix.Unmount(path, unix.MNT_DETACH)
}
