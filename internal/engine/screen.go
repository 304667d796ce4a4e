package engine

import (
	"context"
	"net"

	"hutch"
	"hutch/internal/screen"
)

// screens are the verbs of screens.
type screens struct{ verbs screen.Verbs }

// StartScreen implements hutch.Screens.
func (s screens) StartScreen(ctx context.Context, id string, req hutch.ScreenRequest) (hutch.Screen, error) {
	if err := req.Check(); err != nil {
		return hutch.Screen{}, err
	}
	return screen.Of(s.verbs, id).Start(ctx, req)
}

// Screen implements hutch.Screens.
func (s screens) Screen(ctx context.Context, id string) (hutch.Screen, error) {
	return screen.Of(s.verbs, id).Look(ctx)
}

// Screenshot implements hutch.Screens.
func (s screens) Screenshot(ctx context.Context, id string, req hutch.ScreenshotRequest) (hutch.Screenshot, error) {
	if err := req.Check(); err != nil {
		return hutch.Screenshot{}, err
	}
	return screen.Of(s.verbs, id).Screenshot(ctx, req)
}

// ControlScreen implements hutch.Screens.
func (s screens) ControlScreen(ctx context.Context, id string, req hutch.ControlRequest) (hutch.ControlResult, error) {
	if err := req.Check(); err != nil {
		return hutch.ControlResult{}, err
	}
	return screen.Of(s.verbs, id).Control(ctx, req)
}

// ReadClipboard implements hutch.Screens.
func (s screens) ReadClipboard(ctx context.Context, id string) (string, error) {
	return screen.Of(s.verbs, id).ReadClipboard(ctx)
}

// WriteClipboard implements hutch.Screens.
func (s screens) WriteClipboard(ctx context.Context, id, text string) error {
	if err := hutch.CheckClipboard(text); err != nil {
		return err
	}
	return screen.Of(s.verbs, id).WriteClipboard(ctx, text)
}

// OpenURL implements hutch.Screens.
func (s screens) OpenURL(ctx context.Context, id, address string) (hutch.Process, error) {
	if err := hutch.CheckAddress(address); err != nil {
		return hutch.Process{}, err
	}
	return screen.Of(s.verbs, id).Open(ctx, address)
}

// ViewScreen implements hutch.Screens.
func (s screens) ViewScreen(ctx context.Context, id string, control bool) (net.Conn, error) {
	return screen.Of(s.verbs, id).View(ctx, control)
}
