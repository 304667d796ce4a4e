package compat

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"hutch"
)

// Languages are the languages of the server's default image, as a new sandbox of each owner reported them.
type Languages struct {
	svc   hutch.Service
	log   *slog.Logger
	lists Remembered[[]hutch.Language]
}

// NewLanguages returns the languages of the sandboxes of svc.
func NewLanguages(svc hutch.Service, log *slog.Logger) *Languages {
	return &Languages{svc: svc, log: log}
}

// List returns the languages. It asks a new sandbox of the caller if its list is too old.
func (l *Languages) List(ctx context.Context) (list []hutch.Language, err error) {
	if list, ok := l.lists.Get(ctx); ok {
		return list, nil
	}
	err = Once(ctx, l.svc, l.log, hutch.CreateRequest{Network: hutch.Network{Mode: hutch.NetworkNone}}, time.Minute, func(sandbox string) (err error) {
		list, err = l.svc.Languages(ctx, sandbox)
		return err
	})
	if err == nil {
		l.lists.Put(ctx, list)
	}
	return list, err
}

var versionNumbers = regexp.MustCompile(`[0-9]+(\.[0-9]+){0,2}`)

// Version returns the version that a program reports as three numbers.
func Version(reported string) string {
	v := versionNumbers.FindString(reported)
	if v == "" {
		v = "0"
	}
	for strings.Count(v, ".") < 2 {
		v += ".0"
	}
	return v
}
