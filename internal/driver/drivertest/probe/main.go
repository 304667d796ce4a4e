// Probe is the only program of an image that has no shell. It does everything that the tests of such an image need, and
// uses no file of the image.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(what string, args []string) error {
	switch what {
	case "id":
		groups, err := os.Getgroups()
		dir, _ := os.Getwd()
		fmt.Println(os.Getuid(), os.Getgid(), groups, dir, os.Getenv("HOME"))
		return err
	case "cat":
		text, err := os.ReadFile(args[0])
		os.Stdout.Write(text)
		return err
	case "write":
		return os.WriteFile(args[0], []byte(args[1]), 0o644)
	case "stat":
		return stat(args[0])
	case "ls":
		entries, err := os.ReadDir(args[0])
		for _, e := range entries {
			fmt.Println(e.Name())
		}
		return err
	case "rm":
		return os.RemoveAll(args[0])
	case "fill":
		return fill(args[0], args[1])
	case "attack":
		attack(attempts)
		return nil
	case "attack-as-root":
		attack(rootAttempts)
		return nil
	case "attack-by-ids":
		attack(idAttempts)
		return nil
	case "hold":
		time.Sleep(time.Hour)
		return nil
	case "inotify": // prints how many inotify instances it can have
		n := 0
		for ; err(syscall.InotifyInit()) == nil; n++ {
		}
		fmt.Println(n)
		return nil
	case "kill-all":
		return syscall.Kill(-1, syscall.SIGKILL)
	case "bomb":
		return bomb()
	case "eat":
		return useUpMemory()
	case "spoil":
		replaceFiles()
		return nil
	case "tick":
		return tick(args[0])
	}
	return errors.New("unknown: " + what)
}

func err(_ int, err error) error { return err }

func stat(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	fmt.Println(info.Mode(), st.Uid, st.Gid)
	return nil
}

// fill writes a file with the given size in MiB.
func fill(path, mib string) error {
	n, err := strconv.ParseInt(mib, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, zeros{}, n<<20)
	return errors.Join(err, f.Close())
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte{1}, len(b))), nil }

// tick counts in memory, and writes the count to a file.
func tick(path string) error {
	for n := 1; ; n++ {
		if err := os.WriteFile(path, []byte(strconv.Itoa(n)), 0o644); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
