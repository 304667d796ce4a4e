package driver_test

import (
	"context"
	"testing"

	"hutch/internal/driver"
)

type plain struct{ driver.Instance }

type freezer struct{ plain }

func (*freezer) Freeze(context.Context) error { return nil }
func (*freezer) Thaw(context.Context) error   { return nil }

// logged wraps an instance without knowing its abilities.
type logged struct {
	driver.Instance
	of driver.Instance
}

func (l logged) Unwrap() any { return l.of }

func TestAsLooksThroughWrappers(t *testing.T) {
	t.Parallel()
	able := &freezer{}
	for _, inst := range []driver.Instance{able, logged{of: able}, logged{of: logged{of: able}}} {
		if f, ok := driver.As[driver.Freezer](inst); !ok || f != driver.Freezer(able) {
			t.Errorf("%T: %v, %t", inst, f, ok)
		}
	}
	for _, inst := range []driver.Instance{plain{}, logged{of: plain{}}, nil} {
		if f, ok := driver.As[driver.Freezer](inst); ok {
			t.Errorf("%T has %v", inst, f)
		}
	}
}
