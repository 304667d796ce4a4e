package hutch

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Screens are the verbs on the screen of a sandbox: its picture, mouse, keyboard, clipboard and a browser.
//
// A screen is a VNC server in the sandbox, on ScreenPort of its loopback, without a password. The verbs that change
// something (StartScreen, ControlScreen, WriteClipboard, OpenURL, ViewScreen with control) start one if there is none,
// as a background process named "screen": it needs the program Xtigervnc. The verbs that only read never start
// anything: in a sandbox without a screen they are Conflict. All of them wake a sleeping sandbox. A screen is part of
// its sandbox's processes: where memory is kept, it sleeps, wakes and forks with its content.
type Screens interface {
	// StartScreen starts a screen, or changes the size of the existing one. Without a size, it does not change an
	// existing screen.
	StartScreen(ctx context.Context, sandbox string, req ScreenRequest) (Screen, error)

	// Screen returns the size of the screen and where the pointer is.
	Screen(ctx context.Context, sandbox string) (Screen, error)

	// Screenshot returns a picture of the screen with its pointer, as PNG.
	Screenshot(ctx context.Context, sandbox string, req ScreenshotRequest) (Screenshot, error)

	// ControlScreen does the actions in their order, and returns when the screen has received them. Programs can draw
	// their results later. If ctx ends before all actions are done, or an action fails, the actions before have taken
	// effect; keys and buttons are released, except after LeftMouseDown.
	ControlScreen(ctx context.Context, sandbox string, req ControlRequest) (ControlResult, error)

	// ReadClipboard returns the text that a program copied, or that WriteClipboard wrote; "" if there is none.
	ReadClipboard(ctx context.Context, sandbox string) (string, error)

	// WriteClipboard makes a text the clipboard. It needs the program xclip inside, as reading does.
	WriteClipboard(ctx context.Context, sandbox, text string) error

	// OpenURL opens a page in a browser on the screen: in Chromium, or in another installed browser. The process is the
	// browser, or a helper that passes the page to a running browser and ends.
	OpenURL(ctx context.Context, sandbox, address string) (Process, error)

	// ViewScreen connects to the screen. The connection uses RFB 3.8, VNC's protocol, without a password, until it is
	// closed; ctx limits only the connecting. Mouse, keyboard, clipboard and size of a viewer without control are
	// ignored. The connection counts as a use of the sandbox.
	ViewScreen(ctx context.Context, sandbox string, control bool) (net.Conn, error)
}

const (
	// ScreenPort is the port of the sandbox's loopback where its screen is: display :0.
	ScreenPort = 5900
	// MaxScreenWidth and MaxScreenHeight bound a screen, in pixels.
	MaxScreenWidth  = 3840
	MaxScreenHeight = 2160
	// DefaultScreenWidth and DefaultScreenHeight are the size of a screen for which no request gave a size.
	DefaultScreenWidth  = 1280
	DefaultScreenHeight = 800

	minScreen = 64 // pixels
)

// ScreenRequest asks for a screen.
type ScreenRequest struct {
	// Width and Height are in pixels. Set both or neither. Without a size, a screen that exists keeps its size, and a
	// new one gets 1280 × 800.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
}

// Check refuses a request that no server can answer.
func (r ScreenRequest) Check() error {
	if r == (ScreenRequest{}) {
		return nil
	}
	if r.Width < minScreen || r.Width > MaxScreenWidth || r.Height < minScreen || r.Height > MaxScreenHeight {
		return Errorf(Invalid, "a screen of %d × %d pixels: give a width of %d to %d and a height of %d to %d, or neither", r.Width, r.Height, minScreen, MaxScreenWidth, minScreen, MaxScreenHeight).
			Naming(AboutField, "width")
	}
	return nil
}

// Screen is the state of a screen.
type Screen struct {
	Width  int   `json:"width"`
	Height int   `json:"height"`
	Cursor Point `json:"cursor"`
}

// Point is a pixel of the screen, from its upper left corner.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// Region is a part of the screen.
type Region struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	Width  int `json:"width"`
	Height int `json:"height"`
}

// ScreenshotRequest asks for a picture.
type ScreenshotRequest struct {
	// Region is the part of the screen to show; nil for all of it. A part outside of the screen is cut off.
	Region *Region `json:"region,omitempty"`
}

// Check refuses a request that no server can answer.
func (r ScreenshotRequest) Check() error {
	if r.Region == nil {
		return nil
	}
	x, y, w, h := r.Region.X, r.Region.Y, r.Region.Width, r.Region.Height
	if x < 0 || y < 0 || w < 1 || h < 1 || x >= MaxScreenWidth || y >= MaxScreenHeight || w > MaxScreenWidth || h > MaxScreenHeight {
		return Errorf(Invalid, "the region is %d × %d pixels at %d,%d: give x and y from 0, and a width and a height from 1", w, h, x, y).Naming(AboutField, "region")
	}
	return nil
}

// Screenshot is a picture of the screen, or of a part of it.
type Screenshot struct {
	PNG           []byte
	Width, Height int
}

// ScreenAct is the name of an action, as computer-use models name it.
type ScreenAct string

// The actions, with the fields that each takes in addition to its name.
const (
	MouseMove      ScreenAct = "mouse_move"      // Coordinate
	LeftClick      ScreenAct = "left_click"      // Coordinate, Text: keys held meanwhile
	RightClick     ScreenAct = "right_click"     // as LeftClick
	MiddleClick    ScreenAct = "middle_click"    // as LeftClick
	DoubleClick    ScreenAct = "double_click"    // as LeftClick
	TripleClick    ScreenAct = "triple_click"    // as LeftClick
	LeftClickDrag  ScreenAct = "left_click_drag" // StartCoordinate, Coordinate, Text
	LeftMouseDown  ScreenAct = "left_mouse_down" // Coordinate
	LeftMouseUp    ScreenAct = "left_mouse_up"   // Coordinate
	Scroll         ScreenAct = "scroll"          // Coordinate, ScrollDirection, ScrollAmount, Text
	PressKey       ScreenAct = "key"             // Text: one or more combinations of keys, such as "ctrl+shift+t", separated by blanks
	HoldKey        ScreenAct = "hold_key"        // Text, Duration
	TypeText       ScreenAct = "type"            // Text
	WaitAct        ScreenAct = "wait"            // Duration
	TakeScreenshot ScreenAct = "screenshot"      // the result has the picture
	ZoomIn         ScreenAct = "zoom"            // Region; the result has the picture
	FindCursor     ScreenAct = "cursor_position" // no fields: every result has the position
)

// Direction is where a wheel scrolls.
type Direction string

// The directions.
const (
	ScrollUp    Direction = "up"
	ScrollDown  Direction = "down"
	ScrollLeft  Direction = "left"
	ScrollRight Direction = "right"
)

// ScreenActs lists all actions.
var ScreenActs = []ScreenAct{
	MouseMove, LeftClick, RightClick, MiddleClick, DoubleClick, TripleClick, LeftClickDrag, LeftMouseDown, LeftMouseUp, Scroll,
	PressKey, HoldKey, TypeText, WaitAct, TakeScreenshot, ZoomIn, FindCursor,
}

// ScreenAction is one action. Its JSON is the input of the computer-use tool that models are trained on, so that a
// model's output is a valid request.
type ScreenAction struct {
	Action ScreenAct `json:"action"`
	// Coordinate is x and y, in pixels. Without it, a click is made at the pointer.
	Coordinate      []int  `json:"coordinate,omitempty"`
	StartCoordinate []int  `json:"start_coordinate,omitempty"`
	Text            string `json:"text,omitempty"`
	// ScrollDirection is up, down, left or right; ScrollAmount counts clicks of the wheel, default 3.
	ScrollDirection Direction `json:"scroll_direction,omitempty"`
	ScrollAmount    int       `json:"scroll_amount,omitempty"`
	// Duration is in seconds.
	Duration Seconds `json:"duration,omitempty"`
	// Region is x and y of the upper left and of the lower right corner.
	Region []int `json:"region,omitempty"`
}

const (
	// MaxScreenActions is the highest number of actions in a request.
	MaxScreenActions = 100
	// MaxTyped is the longest text of an action, in bytes.
	MaxTyped = 16 << 10
	// MaxClipboard is the longest text of a clipboard, in bytes.
	MaxClipboard = 1 << 20
	// MaxScreenWait is the longest time that the actions of a request wait and hold keys together.
	MaxScreenWait Seconds = 60

	maxScroll = 100
)

// ControlRequest asks for actions.
type ControlRequest struct {
	Actions []ScreenAction `json:"actions"`
}

// Check refuses a request that no server can answer. Unknown keys are found when they are pressed.
func (r ControlRequest) Check() error {
	if len(r.Actions) == 0 || len(r.Actions) > MaxScreenActions {
		return Errorf(Invalid, "there are %d actions: give 1 to %d", len(r.Actions), MaxScreenActions).Naming(AboutField, "actions")
	}
	wait := Seconds(0)
	for i, a := range r.Actions {
		if err := a.check(); err != nil {
			return Errorf(Invalid, "action %d: %s", i+1, err.Error()).Naming(AboutField, "actions")
		}
		wait += a.Duration
	}
	if wait > MaxScreenWait {
		return Errorf(Invalid, "the actions take %v s: together they may wait and hold keys for %v s; make several requests", wait, MaxScreenWait).Naming(AboutField, "actions")
	}
	return nil
}

// Names returns the actions of the request without their content, which can be a password.
func (r ControlRequest) Names() string {
	names := make([]string, len(r.Actions))
	for i, a := range r.Actions {
		names[i] = string(a.Action)
	}
	return strings.Join(names, " ")
}

// Looks reports whether no action changes anything on the screen.
func (r ControlRequest) Looks() bool {
	for _, a := range r.Actions {
		switch a.Action {
		case TakeScreenshot, ZoomIn, FindCursor, WaitAct:
		default:
			return false
		}
	}
	return true
}

// fields lists the fields of an action: those with ! are required.
var fields = map[ScreenAct]string{
	MouseMove: "coordinate!", LeftClick: "coordinate text", RightClick: "coordinate text", MiddleClick: "coordinate text",
	DoubleClick: "coordinate text", TripleClick: "coordinate text", LeftClickDrag: "start_coordinate coordinate! text",
	LeftMouseDown: "coordinate", LeftMouseUp: "coordinate", Scroll: "coordinate text scroll_direction! scroll_amount",
	PressKey: "text!", HoldKey: "text! duration!", TypeText: "text!", WaitAct: "duration!", TakeScreenshot: "", ZoomIn: "region!", FindCursor: "",
}

func (a ScreenAction) check() error {
	known, ok := fields[a.Action]
	if !ok {
		return Errorf(Invalid, "there is no action %.40q: use %s", a.Action, joinActs())
	}
	takes := " " + known + " "
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"coordinate", a.Coordinate != nil}, {"start_coordinate", a.StartCoordinate != nil}, {"text", a.Text != ""}, {"scroll_direction", a.ScrollDirection != ""},
		{"scroll_amount", a.ScrollAmount != 0}, {"duration", a.Duration != 0}, {"region", a.Region != nil},
	} {
		needed := strings.Contains(takes, " "+f.name+"! ")
		switch {
		case f.given && !needed && !strings.Contains(takes, " "+f.name+" "):
			return Errorf(Invalid, "%s takes no %s: leave it out", a.Action, f.name)
		case needed && !f.given:
			return Errorf(Invalid, "%s needs %s", a.Action, f.name)
		}
	}
	return cmp.Or(checkPoint("coordinate", a.Coordinate), checkPoint("start_coordinate", a.StartCoordinate), a.checkValues())
}

func (a ScreenAction) checkValues() error {
	switch {
	case len(a.Text) > MaxTyped || !utf8.ValidString(a.Text):
		return Errorf(Invalid, "the text has %d bytes: give UTF-8 of up to %d, or use the clipboard", len(a.Text), MaxTyped)
	case a.ScrollDirection != "" && !strings.Contains(" up down left right ", " "+string(a.ScrollDirection)+" "):
		return Errorf(Invalid, "scroll_direction is %.20q: use up, down, left or right", a.ScrollDirection)
	case a.ScrollAmount < 0 || a.ScrollAmount > maxScroll:
		return Errorf(Invalid, "scroll_amount is %d: give 1 to %d", a.ScrollAmount, maxScroll)
	case !(a.Duration >= 0 && a.Duration <= MaxScreenWait):
		return Errorf(Invalid, "duration is %v s: give up to %v", a.Duration, MaxScreenWait)
	case a.Region != nil:
		region, err := regionOf(a.Region)
		if err != nil {
			return err
		}
		return ScreenshotRequest{Region: &region}.Check()
	}
	return nil
}

// Part returns the region of a ZoomIn, which has been checked.
func (a ScreenAction) Part() Region {
	region, _ := regionOf(a.Region)
	return region
}

func regionOf(corners []int) (Region, error) {
	if len(corners) != 4 {
		return Region{}, Errorf(Invalid, "region has %d numbers: give x and y of two corners", len(corners))
	}
	return Region{X: corners[0], Y: corners[1], Width: corners[2] - corners[0], Height: corners[3] - corners[1]}, nil
}

func checkPoint(name string, p []int) error {
	if p != nil && (len(p) != 2 || p[0] < 0 || p[1] < 0 || p[0] >= MaxScreenWidth || p[1] >= MaxScreenHeight) {
		text, _ := json.Marshal(p) // numbers can always be encoded
		return Errorf(Invalid, "%s is %.80s: give [x, y], with x below %d and y below %d, from 0", name, text, MaxScreenWidth, MaxScreenHeight)
	}
	return nil
}

func joinActs() string {
	names := make([]string, len(ScreenActs))
	for i, a := range ScreenActs {
		names[i] = string(a)
	}
	return strings.Join(names, ", ")
}

// ControlResult is the state of the screen after the actions.
type ControlResult struct {
	Screen
	// Image is the picture of the last screenshot or zoom among the actions, as PNG.
	Image []byte `json:"image,omitempty"`
}

// Clipboard is a text that programs copy and paste.
type Clipboard struct {
	Text string `json:"text"`
}

// Address is the address of a page.
type Address struct {
	URL string `json:"url"`
}

// CheckClipboard refuses a text that no clipboard can hold.
func CheckClipboard(text string) error {
	if len(text) > MaxClipboard || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return Errorf(Invalid, "the text has %d bytes: a clipboard takes UTF-8 of up to %d, without a zero byte", len(text), MaxClipboard).Naming(AboutField, "text")
	}
	return nil
}

// CheckAddress refuses a text that is not the address of a page. A browser's own pages and scripts are refused, and so
// is anything that a browser could take for an option.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || len(address) > MaxPath || strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == 0x7f || steers(r) }) || !strings.Contains(" http https file about ", " "+u.Scheme+" ") {
		return Errorf(Invalid, "the url is %.80q: give one that begins with http:, https:, file: or about:, of up to %d bytes without blanks", address, MaxPath).Naming(AboutField, "url")
	}
	return nil
}
