package mount

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Apart runs do on a thread that has its own copy of this process's mounts, its own working folder and its own root.
// Everything that is attached there disappears when do returns, or when this process dies.
func Apart(do func() error) error {
	ended := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so that it ends with this goroutine and no other goroutine runs on it. The
		// first thread cannot end, so it is never used for this.
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
