package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestComparisonsThatHang: comparisons of some owners that never end, because a sandbox does not answer, delay the one
// of another owner only for a moment.
func TestComparisonsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newComparing()
		for i := range comparisons {
			if _, err := c.begin(t.Context(), fmt.Sprint("eve", i)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		end, err := c.begin(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited > slowComparison {
			t.Errorf("a comparison waited %v for those of others", waited)
		}
		end()
	})
}
