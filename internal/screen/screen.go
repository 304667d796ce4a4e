// Package screen is the screen of a sandbox: pictures, mouse, keyboard, clipboard and viewers.
//
// A screen needs no support in the agent or a runtime. It is a VNC server inside, on a port of the sandbox's loopback,
// and this package is its client, on top of existing verbs: DialPort reaches it, StartProcess starts it, Exec runs the
// two small programs for which VNC has no messages (xclip, setxkbmap). So a screen sleeps, wakes, forks and ends as
// every process does, works on every runtime, and needs no state in the daemon: each call makes a connection of its
// own, which takes a millisecond.
//
// The other end is in a hostile sandbox. rfb.go and x11.go read its messages with a limit on every length, and each
// connection has a deadline.
package screen

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"image"
	"image/png"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Verbs are the calls of the sandbox's service that a screen needs.
type Verbs interface {
	DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error)
	StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error)
	Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error)
	Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error)
	Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error
	Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error)
}

// Screen is the screen of one sandbox.
type Screen struct {
	verbs   Verbs
	sandbox string
}

// Of returns the screen of a sandbox.
func Of(verbs Verbs, sandbox string) Screen { return Screen{verbs, sandbox} }

const (
	// talkTime bounds a conversation with a screen, without the pauses of its actions.
	talkTime = 30 * time.Second
	// startTime bounds the start of a screen, in seconds.
	startTime = 60
	name      = "screen"
	// openTime is how long a browser is watched for an early end, in seconds.
	openTime = 0.5
)

// runScript runs the script in scriptVariable. Lists of processes show a command, and would show all of the script if it
// were an argument.
const (
	scriptVariable = "HUTCH_SCRIPT"
	runScript      = `script=$HUTCH_SCRIPT; unset HUTCH_SCRIPT; eval "$script"`
)

//go:embed start.sh
var startScript string

//go:embed open.sh
var openScript string

// Start starts the screen, or changes its size.
func (d Screen) Start(ctx context.Context, req hutch.ScreenRequest) (hutch.Screen, error) {
	var now hutch.Screen
	err := d.ensure(ctx, req)
	if err == nil {
		err = d.talk(ctx, 0, func(r *rfb) error {
			if (req.Width != 0) && (r.width != req.Width || r.height != req.Height) {
				if err := r.setSize(req.Width, req.Height); err != nil {
					return err
				}
			}
			now = d.state(ctx, r)
			return nil
		})
	}
	return now, err
}

// ensure starts the screen if there is none.
func (d Screen) ensure(ctx context.Context, req hutch.ScreenRequest) error {
	c, err := d.verbs.DialPort(ctx, d.sandbox, hutch.ScreenPort)
	if err == nil {
		return c.Close()
	}
	if !absent(err) {
		return err
	}
	width, height := req.Width, req.Height
	if width == 0 {
		width, height = hutch.DefaultScreenWidth, hutch.DefaultScreenHeight
	}
	size := strconv.Itoa(width) + "x" + strconv.Itoa(height)
	if err := d.find(ctx, "command -v Xtigervnc", noScreen); err != nil {
		return err
	}
	p, err := d.verbs.StartProcess(ctx, d.sandbox, hutch.ProcessRequest{
		Name: name, Dir: "/", Env: map[string]string{scriptVariable: startScript}, Command: hutch.CommandLine("sh", "-c", runScript, name, size),
	})
	if err != nil {
		return err
	}
	res, err := d.verbs.Wait(ctx, d.sandbox, p.ID, hutch.WaitRequest{Text: "the screen is ready", Timeout: startTime})
	switch {
	case err != nil || res.Met:
		return err
	case res.TimedOut:
		return hutch.Errorf(hutch.Timeout, "the screen of the sandbox %q did not start within %d s: see `hutch logs %s %s`, or give the sandbox more CPU", d.sandbox, startTime, d.sandbox, p.ID)
	}
	if c, err := d.verbs.DialPort(ctx, d.sandbox, hutch.ScreenPort); err == nil {
		return c.Close()
	}
	return hutch.Errorf(hutch.Conflict, "the screen of the sandbox %q did not start; its last words: %s", d.sandbox, d.words(ctx, p.ID))
}

// find returns an error if a program is missing in the sandbox, so that no process is started that cannot run. The
// command fails if the program is missing.
func (d Screen) find(ctx context.Context, command string, missing string) error {
	res, err := d.verbs.Exec(ctx, d.sandbox, hutch.ExecRequest{Command: command, Dir: "/", Env: map[string]string{scriptVariable: openScript}}, nil)
	if err != nil || res.Success() {
		return err
	}
	return hutch.Errorf(hutch.Unsupported, missing, d.sandbox)
}

// The errors for missing programs.
const (
	noScreen    = "the sandbox %q has no Xtigervnc, the program that shows a screen. With the image host, run on the server: apt-get install tigervnc-standalone-server openbox xclip, and try again. Otherwise use an image with these packages, such as templates/desktop"
	noClipboard = "the image of the sandbox %q has no xclip, which the clipboard needs: use an image with Debian's xclip"
	noBrowser   = "the image of the sandbox %q has no browser: use an image with Debian's chromium"
)

// words returns the end of a process's output.
func (d Screen) words(ctx context.Context, process string) string {
	var all []byte
	d.verbs.Logs(ctx, hutch.LogsRequest{SandboxID: d.sandbox, ProcessID: process}, func(o hutch.Output) error {
		all = append(all, o.Data...)
		all = all[max(0, len(all)-400):]
		return nil
	})
	return strconv.Quote(strings.ToValidUTF8(string(all), "?"))
}

// absent reports whether nothing listens on the port of the screen. A sandbox that cannot be reached is Unavailable too,
// but names no port.
func absent(err error) bool {
	e, ok := errors.AsType[*hutch.Error](err)
	return ok && e.Kind == hutch.Unavailable && e.Data[string(hutch.AboutPort)] != nil
}

// dial connects to the screen, which must run.
func (d Screen) dial(ctx context.Context) (net.Conn, error) {
	c, err := d.verbs.DialPort(ctx, d.sandbox, hutch.ScreenPort)
	if absent(err) {
		err = hutch.Errorf(hutch.Conflict, "the sandbox %q has no screen yet: start one with `hutch screen start %s`, or POST to its screen", d.sandbox, d.sandbox).Because(err)
	}
	return c, err
}

// talk has a conversation with the screen.
func (d Screen) talk(ctx context.Context, more time.Duration, f func(*rfb) error) error {
	conn, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer within(ctx, conn, talkTime+more)()
	r, err := open(conn)
	if err == nil {
		err = f(r)
	}
	return d.explain(ctx, err)
}

// explain turns an error of a conversation into a message for the caller.
func (d Screen) explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	if errors.Is(err, errMalformed) {
		return hutch.Errorf(hutch.Conflict, "the screen of the sandbox %q cannot be used: %v. Stop the program on its port %d, and start the screen again", d.sandbox, err, hutch.ScreenPort)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return hutch.Errorf(hutch.Timeout, "the screen of the sandbox %q did not answer within %v: its processes may be short of CPU; try again, or end the process `screen`", d.sandbox, talkTime)
	}
	return hutch.Errorf(hutch.Unavailable, "the screen of the sandbox %q has ended: start it again with `hutch screen start %s`", d.sandbox, d.sandbox).Because(err)
}

// state returns the size and the pointer.
func (d Screen) state(ctx context.Context, r *rfb) hutch.Screen {
	if !r.placed {
		r.cursor, r.buttons = d.pointer(ctx, r)
		r.placed = true
	}
	return hutch.Screen{Width: r.width, Height: r.height, Cursor: hutch.Point{X: r.cursor.X, Y: r.cursor.Y}}
}

// pointer asks X for the position of the pointer and the pressed buttons, because VNC does not report them. For a
// screen without X it returns the middle of the screen.
func (d Screen) pointer(ctx context.Context, r *rfb) (image.Point, byte) {
	middle := image.Pt(r.width/2, r.height/2)
	conn, err := d.verbs.DialPort(ctx, d.sandbox, x11Port)
	if err != nil {
		return middle, 0
	}
	defer conn.Close()
	defer within(ctx, conn, talkTime)()
	at, buttons, err := queryPointer(conn)
	if err != nil || !at.In(image.Rect(0, 0, r.width, r.height)) {
		return middle, 0
	}
	return at, buttons
}

// Look returns the state of the screen.
func (d Screen) Look(ctx context.Context) (now hutch.Screen, err error) {
	err = d.talk(ctx, 0, func(r *rfb) error {
		now = d.state(ctx, r)
		return nil
	})
	return now, err
}

// Screenshot returns a picture of the screen.
func (d Screen) Screenshot(ctx context.Context, req hutch.ScreenshotRequest) (shot hutch.Screenshot, err error) {
	err = d.talk(ctx, 0, func(r *rfb) error {
		shot, err = takeScreenshot(ctx, r, req.Region)
		return err
	})
	return shot, err
}

var errNoRoom = hutch.Errorf(hutch.Exhausted, "the answers that wait for you to read them leave no room for a screenshot: read those, or ask for a smaller region").
	With("limit", "memory of answers")

func takeScreenshot(ctx context.Context, r *rfb, region *hutch.Region) (hutch.Screenshot, error) {
	part := image.Rect(0, 0, r.width, r.height)
	if region != nil {
		part = image.Rect(region.X, region.Y, region.X+region.Width, region.Y+region.Height).Intersect(part)
	}
	if part.Empty() {
		return hutch.Screenshot{}, hutch.Errorf(hutch.Invalid, "the region lies outside of the screen, which has %d × %d pixels", r.width, r.height).Naming(hutch.AboutField, "region")
	}
	// Half of this is for the picture. The PNG can take as much again.
	if !caller.From(ctx).Budget.Take(8 * part.Dx() * part.Dy()) {
		return hutch.Screenshot{}, errNoRoom
	}
	picture, err := r.picture(part)
	if err != nil {
		return hutch.Screenshot{}, err
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, picture)
	return hutch.Screenshot{PNG: b.Bytes(), Width: part.Dx(), Height: part.Dy()}, err
}

// ReadClipboard returns the text of the clipboard.
func (d Screen) ReadClipboard(ctx context.Context) (string, error) {
	if err := d.needed(ctx); err != nil {
		return "", err
	}
	res, err := d.exec(ctx, "command -v xclip >/dev/null || exit 127; exec timeout 10 xclip -selection clipboard -out")
	switch {
	case err != nil:
		return "", err
	case res.ExitCode == 127:
		return "", hutch.Errorf(hutch.Unsupported, noClipboard, d.sandbox)
	case res.ExitCode != 0: // no text was copied, or a program has copied something else
		return "", nil
	case res.Truncated || len(res.Stdout) > hutch.MaxClipboard:
		return "", hutch.Errorf(hutch.Exhausted, "the clipboard of the sandbox %q has more than %d bytes: save it to a file inside, and read that", d.sandbox, hutch.MaxClipboard)
	}
	return strings.ToValidUTF8(string(res.Stdout), "\ufffd"), nil
}

// needed returns an error if there is no screen.
func (d Screen) needed(ctx context.Context) error {
	c, err := d.dial(ctx)
	if err == nil {
		c.Close()
	}
	return err
}

// WriteClipboard makes text the clipboard. A process provides it to programs that paste, until another program copies.
func (d Screen) WriteClipboard(ctx context.Context, text string) error {
	if err := d.ensure(ctx, hutch.ScreenRequest{}); err != nil {
		return err
	}
	if err := d.find(ctx, "command -v xclip", noClipboard); err != nil {
		return err
	}
	p, err := d.verbs.StartProcess(ctx, d.sandbox, hutch.ProcessRequest{Name: "clipboard", Dir: "/", Env: display, Stdin: true, Command: clipCommand})
	if err != nil {
		return err
	}
	if err := d.verbs.Input(ctx, d.sandbox, p.ID, strings.NewReader(text), true); err != nil && !errors.Is(err, hutch.Conflict) {
		return err // if the process has ended, Wait below finds that out
	}
	done, err := d.verbs.Wait(ctx, d.sandbox, p.ID, hutch.WaitRequest{Text: "Waiting for selection request", Timeout: 20})
	if err != nil || done.Met {
		return err
	}
	return hutch.Errorf(hutch.Conflict, "the clipboard of the sandbox %q cannot be written; the last words of xclip: %s", d.sandbox, d.words(ctx, p.ID))
}

// clipCommand provides the text of its input until another program copies something. It reports when it has begun.
const clipCommand = "exec xclip -verbose -selection clipboard -in"

var display = map[string]string{"DISPLAY": ":0"}

// exec runs a command on the screen.
func (d Screen) exec(ctx context.Context, command string) (hutch.ExecResult, error) {
	return d.verbs.Exec(ctx, d.sandbox, hutch.ExecRequest{Command: command, Dir: "/", Env: display, MaxOutput: hutch.MaxClipboard + 2, Timeout: 20}, nil)
}

// Open opens a page in a browser.
func (d Screen) Open(ctx context.Context, address string) (hutch.Process, error) {
	if err := d.ensure(ctx, hutch.ScreenRequest{}); err != nil {
		return hutch.Process{}, err
	}
	if err := d.find(ctx, runScript, noBrowser); err != nil {
		return hutch.Process{}, err
	}
	p, err := d.verbs.StartProcess(ctx, d.sandbox, hutch.ProcessRequest{
		Name: "browser", Env: map[string]string{"DISPLAY": display["DISPLAY"], scriptVariable: openScript},
		Command: hutch.CommandLine("sh", "-c", runScript, "open", address),
	})
	if err != nil {
		return p, err
	}
	// The browser replaces the process of the script, so a browser that does not work ends the process at once.
	done, err := d.verbs.Wait(ctx, d.sandbox, p.ID, hutch.WaitRequest{Timeout: openTime})
	if code := done.Process.ExitCode; err == nil && code != nil && *code != 0 { // otherwise it runs, or has passed the page to a browser that runs
		err = hutch.Errorf(hutch.Conflict, "the browser of the sandbox %q ended at once; its last words: %s", d.sandbox, d.words(ctx, p.ID))
	}
	return done.Process, err
}
