package host

import (
	"context"
	"strings"

	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/runner"
)

// CheckImage reports which languages the host image has.
func CheckImage(ctx context.Context, images func(context.Context, string) (image.Root, error)) driver.Report {
	root, err := images(ctx, image.HostName)
	if err != nil {
		return driver.Report{Findings: []driver.Finding{{Name: "image", Level: driver.Bad, Detail: err.Error(), Fix: "make the data folder writable, or choose another with --data"}}}
	}
	r := driver.Report{OK: true}
	for _, l := range runner.Languages() {
		r.Findings = append(r.Findings, checkLanguage(root, l))
	}
	return r
}

func checkLanguage(root image.Root, l runner.Language) driver.Finding {
	var found []string
	for _, p := range l.Programs {
		path, ok := root.LookPath(p)
		if !ok {
			return driver.Finding{Name: l.Name, Level: driver.Warning, Detail: p + " is not installed", Fix: "apt-get install " + l.Package + " (its name in Debian), then run this again"}
		}
		found = append(found, path)
	}
	return driver.Finding{Name: l.Name, Level: driver.Good, Detail: strings.Join(found, " ")}
}
