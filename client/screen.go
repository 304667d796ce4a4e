package client

import (
	"bytes"
	"context"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/stream"
)

// StartScreen implements hutch.Screens.
func (c *Client) StartScreen(ctx context.Context, sandbox string, req hutch.ScreenRequest) (hutch.Screen, error) {
	return call[hutch.Screen](ctx, c, at("StartScreen", sandbox).check(req.Check()), req)
}

// Screen implements hutch.Screens.
func (c *Client) Screen(ctx context.Context, sandbox string) (hutch.Screen, error) {
	return call[hutch.Screen](ctx, c, at("Screen", sandbox), nil)
}

// Screenshot implements hutch.Screens.
func (c *Client) Screenshot(ctx context.Context, sandbox string, req hutch.ScreenshotRequest) (hutch.Screenshot, error) {
	q := url.Values{}
	if r := req.Region; r != nil {
		q = url.Values{"x": {strconv.Itoa(r.X)}, "y": {strconv.Itoa(r.Y)}, "width": {strconv.Itoa(r.Width)}, "height": {strconv.Itoa(r.Height)}}
	}
	resp, err := c.do(ctx, at("Screenshot", sandbox).check(req.Check()).with(q), nil, "image/png")
	if err != nil {
		return hutch.Screenshot{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return hutch.Screenshot{}, c.refusal(ctx, resp).Err()
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return hutch.Screenshot{}, c.fault(ctx, err)
	}
	config, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return hutch.Screenshot{}, c.fault(ctx, err)
	}
	return hutch.Screenshot{PNG: b, Width: config.Width, Height: config.Height}, nil
}

// ControlScreen implements hutch.Screens.
func (c *Client) ControlScreen(ctx context.Context, sandbox string, req hutch.ControlRequest) (hutch.ControlResult, error) {
	return call[hutch.ControlResult](ctx, c, at("ControlScreen", sandbox).check(req.Check()), req)
}

// ReadClipboard implements hutch.Screens.
func (c *Client) ReadClipboard(ctx context.Context, sandbox string) (string, error) {
	clipboard, err := call[hutch.Clipboard](ctx, c, at("ReadClipboard", sandbox), nil)
	return clipboard.Text, err
}

// WriteClipboard implements hutch.Screens.
func (c *Client) WriteClipboard(ctx context.Context, sandbox, text string) error {
	_, err := call[struct{}](ctx, c, at("WriteClipboard", sandbox).check(hutch.CheckClipboard(text)), hutch.Clipboard{Text: text})
	return err
}

// OpenURL implements hutch.Screens.
func (c *Client) OpenURL(ctx context.Context, sandbox, address string) (hutch.Process, error) {
	return call[hutch.Process](ctx, c, at("OpenURL", sandbox).check(hutch.CheckAddress(address)), hutch.Address{URL: address})
}

// ViewScreen implements hutch.Screens.
func (c *Client) ViewScreen(ctx context.Context, sandbox string, control bool) (net.Conn, error) {
	conn, err := c.dial(ctx, at("ViewScreen", sandbox).with(url.Values{"control": {strconv.FormatBool(control)}}))
	if err != nil {
		return nil, err
	}
	return stream.NewPipe(conn), nil
}

// Screen is a handle on the screen of a sandbox. Its actions are those of [hutch.ScreenAction].
type Screen struct {
	sandbox *Sandbox
}

// Screen returns a handle on the sandbox's screen, which it does not start.
func (s *Sandbox) Screen() *Screen { return &Screen{s} }

// Start starts the screen, or gives it another size. With the zero request, a new screen gets the default size, and an
// existing screen keeps its size.
func (s *Screen) Start(ctx context.Context, req hutch.ScreenRequest) (hutch.Screen, error) {
	return s.sandbox.client.StartScreen(ctx, s.sandbox.ID, req)
}

// Info returns the size of the screen, and where the pointer is.
func (s *Screen) Info(ctx context.Context) (hutch.Screen, error) {
	return s.sandbox.client.Screen(ctx, s.sandbox.ID)
}

// Screenshot returns a picture of the screen or, if region is not nil, of a part of it.
func (s *Screen) Screenshot(ctx context.Context, region *hutch.Region) (hutch.Screenshot, error) {
	return s.sandbox.client.Screenshot(ctx, s.sandbox.ID, hutch.ScreenshotRequest{Region: region})
}

// Do performs actions in the given order.
func (s *Screen) Do(ctx context.Context, actions ...hutch.ScreenAction) (hutch.ControlResult, error) {
	return s.sandbox.client.ControlScreen(ctx, s.sandbox.ID, hutch.ControlRequest{Actions: actions})
}

func (s *Screen) do(ctx context.Context, action hutch.ScreenAction) error {
	_, err := s.Do(ctx, action)
	return err
}

// Click clicks with the left button.
func (s *Screen) Click(ctx context.Context, x, y int) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.LeftClick, Coordinate: []int{x, y}})
}

// DoubleClick clicks twice with the left button.
func (s *Screen) DoubleClick(ctx context.Context, x, y int) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.DoubleClick, Coordinate: []int{x, y}})
}

// RightClick clicks with the right button.
func (s *Screen) RightClick(ctx context.Context, x, y int) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.RightClick, Coordinate: []int{x, y}})
}

// Move moves the pointer.
func (s *Screen) Move(ctx context.Context, x, y int) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.MouseMove, Coordinate: []int{x, y}})
}

// Drag drags with the left button from one point to another.
func (s *Screen) Drag(ctx context.Context, from, to hutch.Point) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.LeftClickDrag, StartCoordinate: []int{from.X, from.Y}, Coordinate: []int{to.X, to.Y}})
}

// Scroll turns the wheel by some clicks.
func (s *Screen) Scroll(ctx context.Context, x, y int, direction hutch.Direction, amount int) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.Scroll, Coordinate: []int{x, y}, ScrollDirection: direction, ScrollAmount: amount})
}

// Type types a text, in any script.
func (s *Screen) Type(ctx context.Context, text string) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.TypeText, Text: text})
}

// Press presses keys together, such as "ctrl+s" or "Return".
func (s *Screen) Press(ctx context.Context, keys string) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.PressKey, Text: keys})
}

// Hold holds keys for a while.
func (s *Screen) Hold(ctx context.Context, keys string, d time.Duration) error {
	return s.do(ctx, hutch.ScreenAction{Action: hutch.HoldKey, Text: keys, Duration: hutch.InSeconds(d)})
}

// Clipboard returns the text of the clipboard.
func (s *Screen) Clipboard(ctx context.Context) (string, error) {
	return s.sandbox.client.ReadClipboard(ctx, s.sandbox.ID)
}

// SetClipboard makes a text the clipboard.
func (s *Screen) SetClipboard(ctx context.Context, text string) error {
	return s.sandbox.client.WriteClipboard(ctx, s.sandbox.ID, text)
}

// Open opens a page in a browser on the screen.
func (s *Screen) Open(ctx context.Context, address string) (hutch.Process, error) {
	return s.sandbox.client.OpenURL(ctx, s.sandbox.ID, address)
}

// View connects a viewer that speaks RFB, VNC's protocol. Without control, it only watches.
func (s *Screen) View(ctx context.Context, control bool) (net.Conn, error) {
	return s.sandbox.client.ViewScreen(ctx, s.sandbox.ID, control)
}
