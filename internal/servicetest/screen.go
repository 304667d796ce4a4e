package servicetest

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"hutch"
)

// screenTests are tests of screens: Xtigervnc, with programs of X on it.
type screenTests struct{ *suite }

func (s screenTests) all() map[string]func(*testing.T) {
	if s.NoIsolation { // display :0 and port 5900 would be those of the machine
		return nil
	}
	tests := map[string]func(*testing.T){"None": s.noScreen}
	if s.Screens {
		tests["Use"], tests["Mouse"], tests["Browser"] = s.useScreen, s.useMouse, s.useBrowser
	}
	return tests
}

// noScreen: calls that only look do not start a screen.
func (s screenTests) noScreen(t *testing.T) {
	id := s.open(t)
	_, err := s.svc.Screenshot(bounded(t), id, hutch.ScreenshotRequest{})
	wantKind(t, hutch.Conflict, err, "a screenshot without a screen")
	_, err = s.svc.Screen(bounded(t), id)
	wantKind(t, hutch.Conflict, err, "the size of no screen")
	_, err = s.svc.ReadClipboard(bounded(t), id)
	wantKind(t, hutch.Conflict, err, "the clipboard of no screen")
	_, err = s.svc.ViewScreen(bounded(t), id, false)
	wantKind(t, hutch.Conflict, err, "a view of no screen")
	_, err = s.svc.ControlScreen(bounded(t), id, hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.TakeScreenshot}}})
	wantKind(t, hutch.Conflict, err, "an action that only looks")
	_, err = s.svc.StartScreen(bounded(t), id, hutch.ScreenRequest{Width: 1 << 20, Height: 1})
	wantKind(t, hutch.Invalid, err, "a screen of a million pixels")
	_, err = s.svc.OpenURL(bounded(t), id, "javascript:alert(1)")
	wantKind(t, hutch.Invalid, err, "a script for an address")
	if list, err := s.svc.Processes(bounded(t), id); err != nil || len(list) != 0 {
		t.Errorf("looking started %+v, %v", list, err)
	}
	_, err = s.svc.Screenshot(bounded(t), "nobody", hutch.ScreenshotRequest{})
	wantKind(t, hutch.NotFound, err, "a screenshot of no sandbox")
}

// withScreen returns a sandbox with a screen of 640 × 480.
func (s screenTests) withScreen(t *testing.T) string {
	t.Helper()
	id := s.make(t, hutch.CreateRequest{Env: map[string]string{"DISPLAY": ":0", "LC_ALL": "C.UTF-8"}}).ID
	if res := s.do(t, id, hutch.ExecRequest{Command: "command -v Xtigervnc xterm xclip openbox"}); !res.Success() {
		if os.Getenv("CI") != "" {
			t.Fatal("CI needs Xtigervnc, xterm, xclip and openbox")
		}
		t.Skip("no Xtigervnc, xterm, xclip or openbox")
	}
	now, err := s.svc.StartScreen(bounded(t), id, hutch.ScreenRequest{Width: 640, Height: 480})
	if err != nil || now != (hutch.Screen{Width: 640, Height: 480, Cursor: hutch.Point{X: 320, Y: 240}}) {
		t.Fatalf("the screen: %+v, %v", now, err)
	}
	return id
}

// act does some actions on the screen.
func (s screenTests) act(t *testing.T, id string, actions ...hutch.ScreenAction) hutch.ControlResult {
	t.Helper()
	res, err := s.svc.ControlScreen(bounded(t), id, hutch.ControlRequest{Actions: actions})
	if err != nil {
		t.Fatalf("%+v: %v", actions, err)
	}
	return res
}

// picture returns the picture of the screen.
func (s screenTests) picture(t *testing.T, id string, req hutch.ScreenshotRequest) image.Image {
	t.Helper()
	shot, err := s.svc.Screenshot(bounded(t), id, req)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot.PNG))
	if err != nil || picture.Bounds().Size() != image.Pt(shot.Width, shot.Height) {
		t.Fatalf("a picture of %d × %d: %v", shot.Width, shot.Height, err)
	}
	return picture
}

// lit counts the white pixels of a picture.
func lit(picture image.Image) (n int) {
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if r, g, b, _ := picture.At(x, y).RGBA(); r == 0xffff && g == 0xffff && b == 0xffff {
				n++
			}
		}
	}
	return n
}

// window shows a window that fills the screen, and returns when it can be seen. Its program reads lines into a file.
func (s screenTests) window(t *testing.T, id string) {
	t.Helper()
	s.start(t, id, hutch.ProcessRequest{Name: "window", Command: "exec xterm -u8 -bg white -fg black -geometry 200x60+0+0 -e 'cat > typed'"})
	eventually(t, "the window is there", func() bool {
		return lit(s.picture(t, id, hutch.ScreenshotRequest{Region: &hutch.Region{X: 100, Y: 100, Width: 200, Height: 200}})) > 30_000
	})
}

func (s screenTests) useScreen(t *testing.T) {
	id := s.withScreen(t)
	if size := s.picture(t, id, hutch.ScreenshotRequest{}).Bounds().Size(); size != image.Pt(640, 480) {
		t.Errorf("a picture of %v", size)
	}
	if size := s.picture(t, id, hutch.ScreenshotRequest{Region: &hutch.Region{X: 600, Y: 10, Width: 100, Height: 20}}).Bounds().Size(); size != image.Pt(40, 20) {
		t.Errorf("a region at the edge of %v", size)
	}
	_, err := s.svc.Screenshot(bounded(t), id, hutch.ScreenshotRequest{Region: &hutch.Region{X: 700, Y: 10, Width: 10, Height: 20}})
	wantKind(t, hutch.Invalid, err, "a region outside of the screen")

	s.window(t, id)
	const first, second = "Hello, World! {~} Grüße €5", "Привет 世界 🙂 שלום"
	res := s.act(t, id,
		hutch.ScreenAction{Action: hutch.LeftClick, Coordinate: []int{200, 150}},
		hutch.ScreenAction{Action: hutch.TypeText, Text: first + "\n"},
		hutch.ScreenAction{Action: hutch.TypeText, Text: second},
		hutch.ScreenAction{Action: hutch.PressKey, Text: "Return ctrl+d"},
		hutch.ScreenAction{Action: hutch.TakeScreenshot},
	)
	if picture, err := png.Decode(bytes.NewReader(res.Image)); err != nil || picture.Bounds().Dx() != 640 || res.Cursor != (hutch.Point{X: 200, Y: 150}) {
		t.Errorf("after the actions: %+v, %v", res.Screen, err)
	}
	want := first + "\n" + second + "\n"
	eventually(t, "the keys arrive", func() bool { return len(s.run(t, id, "cat typed")) >= len(want) })
	if got := s.run(t, id, "cat typed"); got != want {
		t.Errorf("typed %q, not %q", got, want)
	}

	const text = "copied: 世界 \"'$(id)\nsecond line\n"
	if got, err := s.svc.ReadClipboard(bounded(t), id); err != nil || got != "" {
		t.Errorf("the clipboard at first: %q, %v", got, err)
	}
	for _, text := range []string{"first", text, strings.Repeat("long ", 100_000)} {
		if err := s.svc.WriteClipboard(bounded(t), id, text); err != nil {
			t.Fatal(err)
		}
		if got, err := s.svc.ReadClipboard(bounded(t), id); err != nil || got != text {
			t.Errorf("the clipboard: %d bytes %.60q, %v", len(got), got, err)
		}
	}

	now, err := s.svc.StartScreen(bounded(t), id, hutch.ScreenRequest{Width: 800, Height: 600})
	if err != nil || now.Width != 800 || now.Height != 600 {
		t.Errorf("another size: %+v, %v", now, err)
	}
	if now, err := s.svc.StartScreen(bounded(t), id, hutch.ScreenRequest{}); err != nil || now.Width != 800 {
		t.Errorf("started again: %+v, %v", now, err)
	}
	if size := s.picture(t, id, hutch.ScreenshotRequest{}).Bounds().Size(); size != image.Pt(800, 600) {
		t.Errorf("a picture of %v", size)
	}
}

// useMouse checks through X itself which buttons are down, and which viewers can move the pointer.
func (s screenTests) useMouse(t *testing.T) {
	id := s.withScreen(t)
	at := func(x, y int) hutch.Point { return hutch.Point{X: x, Y: y} }
	if res := s.act(t, id, hutch.ScreenAction{Action: hutch.MouseMove, Coordinate: []int{30, 40}}); res.Cursor != at(30, 40) {
		t.Errorf("moved to %v", res.Cursor)
	}
	if now, err := s.svc.Screen(bounded(t), id); err != nil || now.Cursor != at(30, 40) {
		t.Errorf("a later call finds the pointer at %v: %v", now.Cursor, err)
	}
	_, err := s.svc.ControlScreen(bounded(t), id, hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.LeftClick, Coordinate: []int{640, 0}}}})
	wantKind(t, hutch.Invalid, err, "a click outside of the screen")
	_, err = s.svc.ControlScreen(bounded(t), id, hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.PressKey, Text: "ctrl+nonsense"}}})
	wantKind(t, hutch.Invalid, err, "an unknown key")

	// A button that one call presses stays down until the next call: the window follows the pointer.
	s.start(t, id, hutch.ProcessRequest{Command: "exec xterm -bg white -geometry 20x5+100+100 -e 'cat > typed'"})
	title := hutch.ScreenshotRequest{Region: &hutch.Region{X: 110, Y: 104, Width: 100, Height: 10}} // once the window manager is there
	eventually(t, "the window and its title are there", func() bool {
		return lit(s.picture(t, id, hutch.ScreenshotRequest{})) > 3_000 && lit(s.picture(t, id, title)) < 300
	})
	left := hutch.ScreenshotRequest{Region: &hutch.Region{X: 0, Y: 0, Width: 300, Height: 480}}
	before := lit(s.picture(t, id, left))
	s.act(t, id, hutch.ScreenAction{Action: hutch.LeftMouseDown, Coordinate: []int{160, 110}}) // the title bar
	eventually(t, "the window moves", func() bool {
		s.act(t, id, hutch.ScreenAction{Action: hutch.MouseMove, Coordinate: []int{300, 200}}, hutch.ScreenAction{Action: hutch.MouseMove, Coordinate: []int{460, 310}})
		return lit(s.picture(t, id, left)) < before/2
	})
	s.act(t, id, hutch.ScreenAction{Action: hutch.LeftMouseUp})
	s.act(t, id, hutch.ScreenAction{Action: hutch.MouseMove, Coordinate: []int{160, 110}}) // the button is up, so the window does not move
	if n := lit(s.picture(t, id, left)); n > before/2 {
		t.Errorf("the window follows a button that is up: %d of %d pixels", n, before)
	}
	s.act(t, id, hutch.ScreenAction{Action: hutch.LeftClickDrag, StartCoordinate: []int{460, 310}, Coordinate: []int{160, 110}})
	eventually(t, "the window is back", func() bool { return lit(s.picture(t, id, left)) > before*9/10 })

	s.view(t, id, false, 11, 12)
	if now, err := s.svc.Screen(bounded(t), id); err != nil || now.Cursor != at(160, 110) {
		t.Errorf("a viewer without control moved the pointer to %v: %v", now.Cursor, err)
	}
	s.view(t, id, true, 13, 14)
	if now, err := s.svc.Screen(bounded(t), id); err != nil || now.Cursor != at(13, 14) {
		t.Errorf("a viewer with control left the pointer at %v: %v", now.Cursor, err)
	}
}

// view connects a viewer, which moves the pointer and waits for a picture of one pixel.
func (s screenTests) view(t *testing.T, id string, control bool, x, y byte) {
	t.Helper()
	conn, err := s.svc.ViewScreen(bounded(t), id, control)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	conn.Write([]byte("RFB 003.008\n\x01\x01"))
	conn.Write([]byte{5, 0, 0, x, 0, y})              // the pointer
	conn.Write([]byte{3, 0, 0, 0, 0, 0, 0, 1, 0, 1})  // a question for one pixel
	greeting := make([]byte, 12+2+4+24+len("screen")) // version, security, result, screen
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting[:12]) != "RFB 003.008\n" {
		t.Fatalf("the screen says %q, %v", greeting, err)
	}
	update := make([]byte, 4+12)
	if _, err := io.ReadFull(conn, update); err != nil || update[0] != 0 {
		t.Fatalf("an update: %v, %v", update, err)
	}
}

// useBrowser opens pages in Chromium, and asks its DevTools which pages are open.
func (s screenTests) useBrowser(t *testing.T) {
	id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 1536, Disk: 512}}).ID
	if res := s.do(t, id, hutch.ExecRequest{Command: "command -v Xtigervnc chromium"}); !res.Success() {
		if os.Getenv("CI") != "" {
			t.Fatal("CI needs Xtigervnc and chromium")
		}
		t.Skip("no Xtigervnc or chromium")
	}
	s.writeText(t, id, "one.html", "<title>page one</title><body style='background: white'>")
	s.writeText(t, id, "two.html", "<title>page two</title><body style='background: white'>")
	open := func(id, page string) bool {
		res := s.do(t, id, hutch.ExecRequest{Language: "python", Command: "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:9222/json/list').read().decode())"})
		return strings.Contains(string(res.Stdout), "page "+page)
	}
	for _, page := range []string{"one", "two"} {
		if _, err := s.svc.OpenURL(bounded(t), id, "file:///workspace/"+page+".html"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "page "+page+" is open", func() bool { return open(id, page) })
	}
	eventually(t, "the page can be seen", func() bool { return lit(s.picture(t, id, hutch.ScreenshotRequest{})) > 100_000 })

	// If the runtime keeps memory, a copy shows the same pages.
	copies, err := s.svc.Fork(bounded(t), id, hutch.ForkRequest{})
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	fork := copies[0].ID
	t.Cleanup(func() { s.remove(t, fork) })
	if list, err := s.svc.Processes(bounded(t), fork); err != nil || len(list) == 0 || !list[0].Status.Live() {
		return // the copy has only files, and no memory
	}
	eventually(t, "the copy shows the page", func() bool { return lit(s.picture(t, fork, hutch.ScreenshotRequest{})) > 100_000 })
	if !open(fork, "two") {
		t.Error("the browser of the copy has other pages")
	}
	if res := s.act(t, fork, hutch.ScreenAction{Action: hutch.MouseMove, Coordinate: []int{5, 6}}); res.Cursor != (hutch.Point{X: 5, Y: 6}) {
		t.Errorf("the pointer of the copy is at %v", res.Cursor)
	}
	if now, err := s.svc.Screen(bounded(t), id); err != nil || now.Cursor == (hutch.Point{X: 5, Y: 6}) {
		t.Errorf("the pointer of the copy moved that of the other: %v, %v", now, err)
	}
}
