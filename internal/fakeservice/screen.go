package fakeservice

import (
	"context"
	"net"

	"hutch"
)

// pixel is a PNG of one pixel.
var pixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\x80Z4}k\x00\x00\x00\x00IEND\xaeB`\x82")

// StartScreen gives every sandbox the same screen.
func (s *Service) StartScreen(ctx context.Context, sandbox string, req hutch.ScreenRequest) (hutch.Screen, error) {
	if err := req.Check(); err != nil {
		return hutch.Screen{}, err
	}
	return s.Screen(ctx, sandbox)
}

func (s *Service) Screen(ctx context.Context, sandbox string) (hutch.Screen, error) {
	_, err := s.Sandbox(ctx, sandbox)
	return hutch.Screen{Width: hutch.DefaultScreenWidth, Height: hutch.DefaultScreenHeight, Cursor: hutch.Point{X: 3, Y: 4}}, err
}

func (s *Service) Screenshot(ctx context.Context, sandbox string, req hutch.ScreenshotRequest) (hutch.Screenshot, error) {
	if err := req.Check(); err != nil {
		return hutch.Screenshot{}, err
	}
	_, err := s.Sandbox(ctx, sandbox)
	return hutch.Screenshot{PNG: pixel, Width: 1, Height: 1}, err
}

func (s *Service) ControlScreen(ctx context.Context, sandbox string, req hutch.ControlRequest) (hutch.ControlResult, error) {
	if err := req.Check(); err != nil {
		return hutch.ControlResult{}, err
	}
	now, err := s.Screen(ctx, sandbox)
	res := hutch.ControlResult{Screen: now}
	if last := req.Actions[len(req.Actions)-1].Action; last == hutch.TakeScreenshot || last == hutch.ZoomIn {
		res.Image = pixel
	}
	return res, err
}

func (s *Service) ReadClipboard(ctx context.Context, sandbox string) (string, error) {
	_, err := s.Sandbox(ctx, sandbox)
	return "copied", err
}

func (s *Service) WriteClipboard(ctx context.Context, sandbox, text string) error {
	if err := hutch.CheckClipboard(text); err != nil {
		return err
	}
	_, err := s.Sandbox(ctx, sandbox)
	return err
}

func (s *Service) OpenURL(ctx context.Context, sandbox, address string) (hutch.Process, error) {
	if err := hutch.CheckAddress(address); err != nil {
		return hutch.Process{}, err
	}
	return s.StartProcess(ctx, sandbox, hutch.ProcessRequest{Name: "browser", Command: hutch.CommandLine("chromium", address)})
}

func (s *Service) ViewScreen(ctx context.Context, sandbox string, control bool) (net.Conn, error) {
	return s.DialPort(ctx, sandbox, hutch.ScreenPort)
}
