package screen

import (
	"context"
	"errors"
	"image"
	"slices"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// The buttons of RFB's mask. The wheel is four buttons.
const (
	left       byte = 1 << 0
	middle     byte = 1 << 1
	right      byte = 1 << 2
	wheelUp    byte = 1 << 3
	wheelDown  byte = 1 << 4
	wheelLeft  byte = 1 << 5
	wheelRight byte = 1 << 6
)

var wheels = map[hutch.Direction]byte{hutch.ScrollUp: wheelUp, hutch.ScrollDown: wheelDown, hutch.ScrollLeft: wheelLeft, hutch.ScrollRight: wheelRight}

const (
	// keyPause is the pause between two keys, so that programs see them one by one.
	keyPause = 2 * time.Millisecond
	// clickPause is the pause between the clicks of a double click. Programs ignore a click after a shorter pause, and
	// take the clicks for two single clicks after a longer pause.
	clickPause = 40 * time.Millisecond
	// dragSteps is how many points the pointer passes in a drag, and dragPause is the pause between them: programs
	// begin a drag only when they see the pointer move, and a window manager follows it only after a round trip to X.
	dragSteps = 10
	dragPause = 15 * time.Millisecond
	// A keyboard of X has about 140 free keys for characters that it lacks, and setxkbmap clears these keys. Programs
	// look up the meaning of a key when they handle it, so they have settleTime to catch up before the keys are
	// cleared.
	maxAdded   = 80
	settleTime = 500 * time.Millisecond
	firstPause = 50 * time.Millisecond
)

// controller does actions on a screen.
type controller struct {
	ctx    context.Context
	screen Screen
	*rfb
}

// Control does actions.
func (d Screen) Control(ctx context.Context, req hutch.ControlRequest) (hutch.ControlResult, error) {
	if !req.Looks() {
		if err := d.ensure(ctx, hutch.ScreenRequest{}); err != nil {
			return hutch.ControlResult{}, err
		}
	}
	var res hutch.ControlResult
	err := d.talk(ctx, typingTime(req), func(r *rfb) error {
		h := controller{ctx, d, r}
		d.state(ctx, r)
		shown := lastPicture(req)
		for i, a := range req.Actions {
			if pictures(a) && i != shown { // no caller would see it
				continue
			}
			if err := h.do(a, &res); err != nil {
				if e, ok := errors.AsType[*hutch.Error](err); ok {
					return hutch.Errorf(e.Kind, "action %d, %s: %s", i+1, a.Action, e.Message).Naming(hutch.AboutField, "actions")
				}
				return err
			}
		}
		if err := r.sync(); err != nil {
			return err
		}
		res.Screen = d.state(ctx, r)
		return nil
	})
	return res, err
}

// pictures reports whether an action takes a picture.
func pictures(a hutch.ScreenAction) bool {
	return a.Action == hutch.TakeScreenshot || a.Action == hutch.ZoomIn
}

// lastPicture returns the index of the last action that takes a picture, or -1. Its picture becomes the result's.
func lastPicture(req hutch.ControlRequest) int {
	for i, a := range slices.Backward(req.Actions) {
		if pictures(a) {
			return i
		}
	}
	return -1
}

// typingTime returns how long the actions of a request may take, in addition to [talkTime].
func typingTime(req hutch.ControlRequest) time.Duration {
	total := time.Duration(0)
	for _, a := range req.Actions {
		total += a.Duration.Duration() + 10*keyPause*time.Duration(len(a.Text)) + time.Second
	}
	return total
}

func (h controller) do(a hutch.ScreenAction, res *hutch.ControlResult) error {
	switch a.Action {
	case hutch.TypeText:
		return h.typeText(a.Text)
	case hutch.PressKey, hutch.HoldKey:
		return h.press(a.Text, a.Duration.Duration())
	case hutch.WaitAct:
		return h.pause(a.Duration.Duration())
	case hutch.TakeScreenshot:
		return h.addScreenshot(nil, res)
	case hutch.ZoomIn:
		part := a.Part()
		return h.addScreenshot(&part, res)
	case hutch.FindCursor:
		return nil
	}
	return h.mouse(a)
}

// addScreenshot takes a picture for the result. It charges two more copies of the
// picture, which the answer in JSON needs, to the caller's memory budget.
func (h controller) addScreenshot(part *hutch.Region, res *hutch.ControlResult) error {
	shot, err := takeScreenshot(h.ctx, h.rfb, part)
	if err == nil && !caller.From(h.ctx).Budget.Take(2*len(shot.PNG)) {
		err = errNoRoom
	}
	res.Image = shot.PNG
	return err
}

// mouse does an action of the mouse, while the keys that it names are held.
func (h controller) mouse(a hutch.ScreenAction) error {
	from, err := h.point(a.StartCoordinate)
	if err != nil {
		return err
	}
	at := from
	if a.Coordinate != nil {
		if at, err = h.point(a.Coordinate); err != nil {
			return err
		}
	}
	return h.holding(a.Text, func() error {
		switch a.Action {
		case hutch.MouseMove:
			return h.pointer(at, h.buttons)
		case hutch.LeftMouseDown:
			return h.hold(at, h.buttons|left)
		case hutch.LeftMouseUp:
			return h.hold(at, h.buttons&^left)
		case hutch.LeftClickDrag:
			return h.drag(from, at)
		case hutch.Scroll:
			return h.click(at, wheels[a.ScrollDirection], max(a.ScrollAmount, 3*btoi(a.ScrollAmount == 0)), keyPause)
		case hutch.RightClick:
			return h.click(at, right, 1, 0)
		case hutch.MiddleClick:
			return h.click(at, middle, 1, 0)
		case hutch.DoubleClick:
			return h.click(at, left, 2, clickPause)
		case hutch.TripleClick:
			return h.click(at, left, 3, clickPause)
		}
		return h.click(at, left, 1, 0)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// point returns a point of a request, or where the pointer is.
func (h controller) point(p []int) (image.Point, error) {
	if p == nil {
		return h.cursor, nil
	}
	at := image.Pt(p[0], p[1])
	if !at.In(image.Rect(0, 0, h.width, h.height)) {
		return at, hutch.Errorf(hutch.Invalid, "the point %d,%d lies outside of the screen, which has %d × %d pixels", at.X, at.Y, h.width, h.height)
	}
	return at, nil
}

// hold moves the pointer, and then changes which buttons are down.
func (h controller) hold(at image.Point, buttons byte) error {
	if err := h.pointer(at, h.buttons); err != nil {
		return err
	}
	h.buttons = buttons
	return h.pointer(at, buttons)
}

// click presses and releases a button a number of times.
func (h controller) click(at image.Point, button byte, times int, pause time.Duration) error {
	held := h.buttons &^ button
	if err := h.hold(at, held); err != nil {
		return err
	}
	for i := range times {
		if i > 0 {
			if err := h.pause(pause); err != nil {
				return err
			}
		}
		if err := h.pointer(at, held|button); err != nil {
			return err
		}
		if err := h.pointer(at, held); err != nil {
			return err
		}
	}
	return nil
}

func (h controller) drag(from, to image.Point) error {
	if err := h.hold(from, h.buttons|left); err != nil {
		return err
	}
	for i := range dragSteps + 2 { // the last steps stay at the end
		if err := h.pause(dragPause); err != nil {
			break // the button is released in any case
		}
		if err := h.pointer(from.Add(to.Sub(from).Mul(min(i, dragSteps)).Div(dragSteps)), h.buttons); err != nil {
			return err
		}
	}
	return errors.Join(h.hold(h.cursor, h.buttons&^left), context.Cause(h.ctx))
}

// press presses keys together and releases them, one chord after the other. Each chord is held for a while.
func (h controller) press(text string, hold time.Duration) error {
	list, err := chords(text)
	if err != nil {
		return err
	}
	for _, keys := range list {
		if err := h.down(keys, func() error { return h.pause(max(hold, keyPause)) }); err != nil {
			return err
		}
	}
	return nil
}

// holding runs f while keys are held; text can be empty.
func (h controller) holding(text string, f func() error) error {
	if text == "" {
		return f()
	}
	list, err := chords(text)
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return hutch.Errorf(hutch.Invalid, "text is %.40q: give the keys to hold, such as shift or ctrl+alt", text)
	}
	return h.down(list[0], f)
}

// down holds keys while f runs, and releases them in any case.
func (h controller) down(keys []uint32, f func() error) (err error) {
	for i, sym := range keys {
		if err := h.key(sym, true); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.key(keys[i], false)) }()
	}
	return f()
}

// typeText types characters. The screen adds characters without a key to the keyboard.
func (h controller) typeText(text string) error {
	added := map[rune]bool{}
	for _, c := range text {
		if c > 0x7e && !added[c] {
			if len(added)%maxAdded == 0 {
				if err := h.clear(len(added) == 0); err != nil {
					return err
				}
			}
			added[c] = true
		}
		sym := symbol(c)
		if err := errors.Join(h.key(sym, true), h.key(sym, false)); err != nil {
			return err
		}
		if err := h.pause(keyPause); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the added characters from the keyboard, when programs have handled the typed text. A screen without
// setxkbmap keeps them.
func (h controller) clear(first bool) error {
	if err := h.sync(); err != nil {
		return err
	}
	wait := settleTime
	if first {
		wait = firstPause
	}
	if err := h.pause(wait); err != nil {
		return err
	}
	_, err := h.screen.exec(h.ctx, "exec setxkbmap -symbols pc+us 2>/dev/null")
	return err
}

// pause waits. The pause after a key is for the programs, not for us: meanwhile the written messages are in transit.
func (h controller) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	}
}
