package screen

import (
	"context"
	"encoding/binary"
	"net"

	"hutch"
)

// View connects a viewer with the screen.
func (d Screen) View(ctx context.Context, control bool) (net.Conn, error) {
	if !control {
		conn, err := d.dial(ctx)
		if err != nil {
			return nil, err
		}
		return &watcher{Conn: conn}, nil
	}
	if err := d.ensure(ctx, hutch.ScreenRequest{}); err != nil {
		return nil, err
	}
	return d.dial(ctx)
}

// handshake has the lengths of a viewer's first three messages: its version, the kind of security, and that it shares
// the screen. The server answers each before the viewer sends the next.
var handshake = []int{12, 1, 1}

// watcher is the connection of a viewer that only watches. It passes on messages that change nothing and drops the
// others. An unknown message ends the connection, because its length is unknown.
type watcher struct {
	net.Conn
	said int    // parts of the handshake so far
	head []byte // head of the message that is coming, until its length is known
	need int    // bytes of head until the next decision
	left int64  // bytes of the message after its head
	pass bool   // the message is passed to the screen
}

// CloseWrite ends the viewer's side of the connection.
func (w *watcher) CloseWrite() error {
	if c, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// Write passes on the messages in b that change nothing.
func (w *watcher) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		if w.left > 0 {
			n := min(w.left, int64(len(rest)))
			if w.pass {
				out = append(out, rest[:n]...)
			}
			rest, w.left = rest[n:], w.left-n
			continue
		}
		n := min(max(w.need, 1)-len(w.head), len(rest))
		w.head, rest = append(w.head, rest[:n]...), rest[n:]
		done, err := w.decide()
		if err != nil {
			w.Conn.Close()
			return 0, err
		}
		if done {
			if w.pass {
				out = append(out, w.head...)
			}
			w.head, w.need = w.head[:0], 1
		}
	}
	if len(out) > 0 {
		if _, err := w.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// decide looks at the head of a message. It reports whether the head is complete, or sets how much of it is needed.
func (w *watcher) decide() (done bool, err error) {
	if w.said < len(handshake) {
		return w.greet()
	}
	fixed, pass, more, err := message(w.head)
	if err != nil {
		return false, err
	}
	if len(w.head) < fixed {
		w.need = fixed
		return false, nil
	}
	w.pass, w.left = pass, more
	return true, nil
}

// greet looks at a part of the handshake.
func (w *watcher) greet() (done bool, err error) {
	if w.need = handshake[w.said]; len(w.head) < w.need {
		return false, nil
	}
	switch {
	case w.said == 0 && string(w.head) != "RFB 003.008\n", w.said == 1 && w.head[0] != securityNone:
		return false, hutch.Errorf(hutch.Invalid, "the viewer does not speak RFB 3.8 without a password: use a newer one")
	case w.said == 2:
		w.head[0] = sharedDesktop
	}
	w.said, w.pass = w.said+1, true
	return true, nil
}

// message returns the length of the fixed part of a client's message, whether it passes, and, once the fixed part is
// there, how many bytes follow.
func message(head []byte) (fixed int, pass bool, more int64, err error) {
	count := func() int64 { return 0 }
	switch head[0] {
	case toSetPixelFormat:
		fixed, pass = 20, true
	case toSetEncodings:
		fixed, pass = 4, true
		count = func() int64 { return 4 * int64(binary.BigEndian.Uint16(head[2:])) }
	case toUpdateRequest, 150: // EnableContinuousUpdates
		fixed, pass = 10, true
	case 248: // ClientFence
		fixed, pass = 9, true
		count = func() int64 { return int64(head[8]) }
	case toKey:
		fixed = 8
	case toPointer:
		fixed = 6
		if len(head) >= 2 && head[1]&0x80 != 0 { // 7 bytes long, or 6 with an eighth button: only the server's answers would show which
			return 0, false, 0, hutch.Errorf(hutch.Invalid, "the viewer sent an eighth or further mouse button: use buttons 1 to 7, or connect with control")
		}
	case toCutText: // a negative length means that formats follow
		fixed = 8
		count = func() int64 {
			n := int64(int32(binary.BigEndian.Uint32(head[4:])))
			return max(n, -n)
		}
	case toSetDesktopSize:
		fixed = 8
		count = func() int64 { return 16 * int64(head[6]) }
	case 250: // xvp: shut down, reboot
		fixed = 4
	case 255: // QEMU
		fixed = 2
		if len(head) >= 2 {
			if head[1] != 0 {
				return 0, false, 0, hutch.Errorf(hutch.Invalid, "the viewer asks for more than a picture")
			}
			fixed = 12 // the length of a key event
		}
	default:
		return 0, false, 0, hutch.Errorf(hutch.Invalid, "the viewer sent a message of the unknown type %d", head[0])
	}
	if len(head) >= fixed {
		more = count()
	}
	return fixed, pass, more, nil
}
