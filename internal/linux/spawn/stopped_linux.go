package spawn

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// For a moment before it executes, a child has its user already, and other
// processes of that user can stop it. Its parent would wait for it forever, with
// all locks that it holds. So the child is continued again and again, and killed
// when that does not help: then whoever stops it does so all the time.
const (
	checkInterval = 50 * time.Millisecond
	mostStops     = 20
)

// watch continues the child until the caller ends that.
func (p *plan) watch() (end func()) {
	var over atomic.Bool
	stops, start := 0, make(chan struct{})
	var timer *time.Timer
	timer = time.AfterFunc(checkInterval, func() {
		<-start // timer is set
		child := int(atomic.LoadInt32(&p.child))
		if over.Load() {
			return
		}
		if child != 0 && stopped(child) {
			if stops++; stops > mostStops {
				unix.Kill(child, unix.SIGKILL)
			}
			unix.Kill(child, unix.SIGCONT)
		}
		timer.Reset(checkInterval)
	})
	close(start)
	return func() {
		over.Store(true)
		timer.Stop()
	}
}

// stopped reports whether a child of ours is stopped.
func stopped(child int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, child, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}
