package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestComparisonsThatHang: comparisons that never end, because a sandbox does not answer, delay the comparison of
// another owner only for a moment, even if they are as many as can run at once.
func TestComparisonsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newComparing()
		for i := range mostComparisons {
			ctx, end, err := c.begin(t.Context(), fmt.Sprint("eve", i))
			if err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(ctx, end)
		}
		began := time.Now()
		_, end, err := c.begin(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited > slowComparison {
			t.Errorf("a comparison waited %v for those of others", waited)
		}
		end()
	})
}
