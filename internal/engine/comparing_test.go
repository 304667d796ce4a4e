package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestComparisonsThatHang: comparisons of as many owners as can compare that never end, because a sandbox does not answer, delay the one
// of another owner only for a moment.
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
