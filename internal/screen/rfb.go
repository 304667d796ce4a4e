package screen

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"time"

	"hutch"
)

// The other end of an RFB connection is in a hostile sandbox. Its messages are read into memory of fixed size, or of a
// size that was checked before. The connection's deadline bounds the time.
const (
	maxName    = 4 << 10 // longest name of the desktop, in bytes
	maxReason  = 1 << 10 // longest reason of a server that refuses, in bytes
	maxCut     = 1 << 20 // longest clipboard that the server can announce, in bytes; it is skipped
	maxColours = 256     // entries of a colour map; they are skipped
	maxUpdates = 16      // most updates for one picture
	maxNoise   = 1 << 12 // most messages between two updates
)

// The messages and encodings of RFB that this package uses.
// https://github.com/rfbproto/rfbproto/blob/master/rfbproto.rst
const (
	toSetPixelFormat = 0
	toSetEncodings   = 2
	toUpdateRequest  = 3
	toKey            = 4
	toPointer        = 5
	toCutText        = 6
	toSetDesktopSize = 251

	fromUpdate     = 0
	fromColours    = 1
	fromBell       = 2
	fromCutText    = 3
	securityNone   = 1
	sharedDesktop  = 1
	encodeRaw      = 0
	encodeSize     = -308       // ExtendedDesktopSize
	encodeCursorAt = 0x574d5666 // VMware's cursor position
)

// rfb is the client's end of a connection with a screen. Its methods are for one goroutine.
type rfb struct {
	conn          net.Conn
	in            *bufio.Reader
	width, height int
	// layout are the screens that ExtendedDesktopSize reported, 16 bytes each; nil before.
	layout  []byte
	resized bool // the server has reported a size since the request
	refused int  // why the server did not take a size
	cursor  image.Point
	placed  bool // cursor and buttons are known
	buttons byte // buttons that are down
	scratch [16]byte
}

// errMalformed is the error for every message that breaks the protocol.
var errMalformed = errors.New("the server does not speak RFB as it should")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// open does the handshake with a server. The deadline of conn bounds it.
func open(conn net.Conn) (*rfb, error) {
	r := &rfb{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := r.greet(); err != nil {
		return nil, err
	}
	if err := r.init(); err != nil {
		return nil, err
	}
	return r, r.requestFormat()
}

func (r *rfb) greet() error {
	version, err := r.bytes(12)
	if err != nil {
		return err
	}
	if string(version) < "RFB 003.008\n" || string(version) > "RFB 003.999\n" {
		return protocolError("its first words are %.12q", version)
	}
	if err := r.write([]byte("RFB 003.008\n")); err != nil {
		return err
	}
	n, err := r.u8()
	if err != nil {
		return err
	}
	if n == 0 {
		return r.refusal()
	}
	types, err := io.ReadAll(io.LimitReader(r.in, int64(n)))
	if err != nil {
		return err
	}
	for _, t := range types {
		if t == securityNone {
			return r.write([]byte{securityNone})
		}
	}
	return protocolError("it asks for a password: a screen has none, as only its own sandbox reaches it (-SecurityTypes None)")
}

func (r *rfb) init() error {
	result, err := r.u32()
	if err != nil {
		return err
	}
	if result != 0 {
		return r.refusal()
	}
	if err := r.write([]byte{sharedDesktop}); err != nil {
		return err
	}
	if err := r.size(); err != nil {
		return err
	}
	if err := r.skip(16); err != nil { // its pixel format: ours is set later
		return err
	}
	n, err := r.u32()
	if err != nil {
		return err
	}
	if n > maxName {
		return protocolError("its name has %d bytes", n)
	}
	return r.skip(int64(n))
}

// requestFormat requests the format of pixels and updates: 4 bytes red, green, blue and unused, as in [image.RGBA].
func (r *rfb) requestFormat() error {
	b := []byte{toSetPixelFormat, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0}
	encodings := []int32{encodeRaw, encodeSize, encodeCursorAt}
	b = append(b, toSetEncodings, 0, 0, byte(len(encodings)))
	for _, e := range encodings {
		b = binary.BigEndian.AppendUint32(b, uint32(e))
	}
	return r.write(b)
}

func (r *rfb) refusal() error {
	n, err := r.u32()
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r.in, int64(min(n, maxReason))))
	if err != nil {
		return err
	}
	return protocolError("it refuses: %.200q", b)
}

func (r *rfb) size() error {
	b, err := r.bytes(4)
	if err != nil {
		return err
	}
	return r.resize(int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:])))
}

func (r *rfb) resize(width, height int) error {
	if width < 1 || height < 1 || width > hutch.MaxScreenWidth || height > hutch.MaxScreenHeight {
		return protocolError("its screen has %d × %d pixels; up to %d × %d are taken", width, height, hutch.MaxScreenWidth, hutch.MaxScreenHeight)
	}
	r.width, r.height = width, height
	return nil
}

// picture returns the content of part of the screen.
func (r *rfb) picture(part image.Rectangle) (*image.RGBA, error) {
	picture := image.NewRGBA(part)
	for i := 3; i < len(picture.Pix); i += 4 {
		picture.Pix[i] = 0xff
	}
	// Xtigervnc answers the first request only with its size. The pixels then count as changed, and come with the
	// answer to a second request, which is for changes. A server that draws the same pixels twice gets a picture with
	// holes, which is its own fault.
	missing := part.Dx() * part.Dy()
	for i := range maxUpdates {
		if err := r.ask(part, i > 0); err != nil {
			return nil, err
		}
		drawn, err := r.update(picture)
		if err != nil {
			return nil, err
		}
		if missing -= drawn; missing <= 0 {
			return picture, nil
		}
	}
	return nil, protocolError("its picture has no end")
}

// sync returns when the server has processed all messages that were sent before. The server processes messages in
// order, and the last of them asks for one pixel.
func (r *rfb) sync() error {
	_, err := r.picture(image.Rect(0, 0, 1, 1))
	return err
}

// ask requests the content of part of the screen, or its changes.
func (r *rfb) ask(part image.Rectangle, changes bool) error {
	b := []byte{toUpdateRequest, 0}
	if changes {
		b[1] = 1
	}
	for _, v := range []int{part.Min.X, part.Min.Y, part.Dx(), part.Dy()} {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return r.write(b)
}

// update reads messages up to an update, and draws the part of it that is in picture. It returns the number of pixels
// drawn.
func (r *rfb) update(picture *image.RGBA) (drawn int, err error) {
	if err := r.untilUpdate(); err != nil {
		return 0, err
	}
	b, err := r.bytes(3)
	if err != nil {
		return 0, err
	}
	for range binary.BigEndian.Uint16(b[1:]) {
		n, err := r.rectangle(picture)
		if err != nil {
			return 0, err
		}
		drawn += n
	}
	return drawn, nil
}

func (r *rfb) untilUpdate() error {
	for range maxNoise {
		kind, err := r.u8()
		if err != nil {
			return err
		}
		switch kind {
		case fromUpdate:
			return nil
		case fromBell:
		case fromCutText:
			err = r.skipCut()
		case fromColours:
			err = r.skipColours()
		default:
			err = protocolError("it sent a message of type %d, which nothing asked for", kind)
		}
		if err != nil {
			return err
		}
	}
	return protocolError("it sends messages without end")
}

func (r *rfb) skipCut() error {
	b, err := r.bytes(7)
	if err != nil {
		return err
	}
	n := int64(int32(binary.BigEndian.Uint32(b[3:])))
	if n < 0 || n > maxCut {
		return protocolError("its clipboard has %d bytes", n)
	}
	return r.skip(n)
}

func (r *rfb) skipColours() error {
	b, err := r.bytes(5)
	if err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint16(b[3:]))
	if n > maxColours {
		return protocolError("its colour map has %d entries", n)
	}
	return r.skip(6 * n)
}

// rectangle reads one rectangle, and returns how many pixels of it were drawn.
func (r *rfb) rectangle(picture *image.RGBA) (int, error) {
	b, err := r.bytes(12)
	if err != nil {
		return 0, err
	}
	v := func(i int) int { return int(binary.BigEndian.Uint16(b[2*i:])) }
	at := image.Rect(v(0), v(1), v(0)+v(2), v(1)+v(3))
	reason := v(1)
	switch encoding := int32(binary.BigEndian.Uint32(b[8:])); encoding {
	case encodeRaw:
		return r.raw(picture, at)
	case encodeCursorAt:
		r.cursor, r.placed = at.Min, true
		return 0, nil
	case encodeSize:
		return 0, r.sizeRectangle(at, reason)
	default:
		return 0, protocolError("it sent the encoding %d, which nothing asked for", encoding)
	}
}

// raw reads pixels row by row.
func (r *rfb) raw(picture *image.RGBA, at image.Rectangle) (int, error) {
	switch {
	case at.Max.X > r.width || at.Max.Y > r.height: // not with In, which is true for every empty rectangle
		return 0, protocolError("it draws outside of its screen, at %v", at)
	case at.Empty(): // its rows would cost time without reading a byte, and a deadline ends only reads
		return 0, nil
	}
	inside := at.Intersect(picture.Rect)
	before, after := int64(4*(inside.Min.X-at.Min.X)), int64(4*(at.Max.X-inside.Max.X))
	for y := at.Min.Y; y < at.Max.Y; y++ {
		if y < inside.Min.Y || y >= inside.Max.Y {
			if err := r.skip(int64(4 * at.Dx())); err != nil {
				return 0, err
			}
			continue
		}
		if err := r.skip(before); err != nil {
			return 0, err
		}
		row := picture.Pix[picture.PixOffset(inside.Min.X, y):][:4*inside.Dx()]
		if _, err := io.ReadFull(r.in, row); err != nil {
			return 0, err
		}
		for i := 3; i < len(row); i += 4 {
			row[i] = 0xff
		}
		if err := r.skip(after); err != nil {
			return 0, err
		}
	}
	return inside.Dx() * inside.Dy(), nil
}

// sizeRectangle reads a report of the server's size: x says which client changed it, y whether that failed.
func (r *rfb) sizeRectangle(at image.Rectangle, refused int) error {
	n, err := r.u8()
	if err != nil {
		return err
	}
	if err := r.skip(3); err != nil {
		return err
	}
	layout := make([]byte, 16*int(n))
	if _, err := io.ReadFull(r.in, layout); err != nil {
		return err
	}
	r.layout, r.resized, r.refused = layout, true, refused
	if refused != 0 {
		return nil
	}
	return r.resize(at.Dx(), at.Dy())
}

// setSize asks for another size, and waits for the server's answer.
func (r *rfb) setSize(width, height int) error {
	if err := r.sync(); err != nil { // the answer contains the present layout
		return err
	}
	if len(r.layout) < 16 || len(r.layout) > 16*255 {
		return protocolError("its size cannot be changed: it does not know ExtendedDesktopSize")
	}
	b := []byte{toSetDesktopSize, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(width))
	b = binary.BigEndian.AppendUint16(b, uint16(height))
	b = append(b, 1, 0)
	b = append(b, r.layout[:4]...) // the id of the first screen
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(width))
	b = binary.BigEndian.AppendUint16(b, uint16(height))
	b = append(b, 0, 0, 0, 0)
	if err := r.write(b); err != nil {
		return err
	}
	for range maxNoise {
		r.resized = false
		if err := r.sync(); err != nil {
			return err
		}
		if r.refused != 0 {
			return protocolError("it refuses the size %d × %d (%d)", width, height, r.refused)
		}
		if r.width == width && r.height == height {
			return nil
		}
	}
	return protocolError("it keeps its size of %d × %d", r.width, r.height)
}

// pointer moves the pointer and says which buttons are down.
func (r *rfb) pointer(at image.Point, buttons byte) error {
	b := []byte{toPointer, buttons}
	b = binary.BigEndian.AppendUint16(b, uint16(at.X))
	b = binary.BigEndian.AppendUint16(b, uint16(at.Y))
	r.cursor, r.placed = at, true
	return r.write(b)
}

func (r *rfb) key(sym uint32, down bool) error {
	b := []byte{toKey, 0, 0, 0}
	if down {
		b[1] = 1
	}
	return r.write(binary.BigEndian.AppendUint32(b, sym))
}

func (r *rfb) write(b []byte) error {
	_, err := r.conn.Write(b)
	return err
}

// bytes reads n bytes, at most 16. They are valid until the next call.
func (r *rfb) bytes(n int) ([]byte, error) {
	_, err := io.ReadFull(r.in, r.scratch[:n])
	return r.scratch[:n], err
}

func (r *rfb) u8() (byte, error) { return r.in.ReadByte() }

func (r *rfb) u32() (uint32, error) {
	b, err := r.bytes(4)
	return binary.BigEndian.Uint32(b), err
}

func (r *rfb) skip(n int64) error {
	_, err := io.CopyN(io.Discard, r.in, n)
	return err
}

// within sets the deadline of a connection. When ctx ends, a second remains to release keys and buttons.
func within(ctx context.Context, conn net.Conn, limit time.Duration) (stop func() bool) {
	conn.SetDeadline(time.Now().Add(limit))
	return context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now().Add(time.Second)) })
}
