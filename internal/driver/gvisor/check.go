package gvisor

import (
	"context"

	"hutch/internal/driver"
)

// Check implements driver.Driver.
func (d *Driver) Check(ctx context.Context) driver.Report {
	return driver.Report{OK: true}
}
