package mount

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Apart runs do on a thread that has a copy of this process's mounts, a working
// folder and a root of its own. All that is attached there is gone when do
// returns, or when this process dies.
func Apart(do func() error) error {
	ended := make(chan error, 1)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine and nobody
		// else finds itself in there. The first thread does not end; it stays as
		// it is, and is kept from being the one.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			ended <- Apart(do)
			return
		}
		err := leave()
		if err == nil {
			err = do()
		}
		ended <- err
	}()
	return <-ended
}

func leave() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the mounts of the host: %w", err)
	}
	return nil
}
