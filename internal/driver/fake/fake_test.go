package fake_test

import (
	"testing"

	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/driver/fake"
)

func TestContract(t *testing.T) {
	drivers := map[string]*fake.Driver{} // instances outlive the engine, but not their Driver
	drivertest.Run(t, drivertest.Config{
		Dir: (*testing.T).TempDir,
		New: func(t *testing.T, dir string) driver.Driver {
			if drivers[dir] == nil {
				drivers[dir] = fake.New(dir)
			}
			return drivers[dir]
		},
		Kill: func(_ *testing.T, d driver.Driver, id string) { d.(*fake.Driver).Kill(id) },
	})
}
