package delay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"hutch/internal/delay"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := errors.New("the caller has left")
		ctx, cancel := context.WithCancelCause(t.Context())
		began := time.Now()
		if err := delay.Wait(ctx, time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("waited %v, with the error %v", time.Since(began), err)
		}
		time.AfterFunc(time.Second, func() { cancel(left) })
		began = time.Now()
		if err := delay.Wait(ctx, time.Minute); !errors.Is(err, left) || time.Since(began) != time.Second {
			t.Errorf("waited %v, with the error %v; want %v after 1s", time.Since(began), err, left)
		}
	})
}
