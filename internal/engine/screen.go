package engine

import (
	"context"
	"net"

	"hutch"
	"hutch/internal/screen"
)

// StartScreen implements hutch.Screens.
func (e *Engine) StartScreen(ctx context.Context, id string, req hutch.ScreenRequest) (hutch.Screen, error) {
	if err := req.Check(); err != nil {
		return hutch.Screen{}, err
	}
	return screen.Of(e, id).Start(ctx, req)
}

// Screen implements hutch.Screens.
func (e *Engine) Screen(ctx context.Context, id string) (hutch.Screen, error) {
	return screen.Of(e, id).Look(ctx)
}

// Screenshot implements hutch.Screens.
func (e *Engine) Screenshot(ctx context.Context, id string, req hutch.ScreenshotRequest) (hutch.Screenshot, error) {
	if err := req.Check(); err != nil {
		return hutch.Screenshot{}, err
	}
	return screen.Of(e, id).Screenshot(ctx, req)
}

// ControlScreen implements hutch.Screens.
func (e *Engine) ControlScreen(ctx context.Context, id string, req hutch.ControlRequest) (hutch.ControlResult, error) {
	if err := req.Check(); err != nil {
		return hutch.ControlResult{}, err
	}
	return screen.Of(e, id).Control(ctx, req)
}

// ReadClipboard implements hutch.Screens.
func (e *Engine) ReadClipboard(ctx context.Context, id string) (string, error) {
	return screen.Of(e, id).ReadClipboard(ctx)
}

// WriteClipboard implements hutch.Screens.
func (e *Engine) WriteClipboard(ctx context.Context, id, text string) error {
	if err := hutch.CheckClipboard(text); err != nil {
		return err
	}
	return screen.Of(e, id).WriteClipboard(ctx, text)
}

// OpenURL implements hutch.Screens.
func (e *Engine) OpenURL(ctx context.Context, id, address string) (hutch.Process, error) {
	if err := hutch.CheckAddress(address); err != nil {
		return hutch.Process{}, err
	}
	return screen.Of(e, id).Open(ctx, address)
}

// ViewScreen implements hutch.Screens.
func (e *Engine) ViewScreen(ctx context.Context, id string, control bool) (net.Conn, error) {
	return screen.Of(e, id).View(ctx, control)
}
