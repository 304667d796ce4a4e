// Hutch-gofer opens the files of an image for one gVisor sandbox. It is never
// started: hutch-runsc becomes it, see package gofer.
package main

import (
	"fmt"
	"os"

	"hutch/internal/driver/gvisor/gofer"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-gofer:", err)
		os.Exit(1)
	}
}

func run() error {
	service, err := gofer.Decode(os.Args[len(os.Args)-1])
	if err != nil {
		return fmt.Errorf("this program is started by hutch-runsc: %w", err)
	}
	return service.Run()
}
