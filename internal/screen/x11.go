package screen

import (
	"bufio"
	"encoding/binary"
	"image"
	"io"
	"net"
)

// x11Port is where display :0 listens.
const x11Port = 6000

// maxSetup limits an X server's description of itself, in bytes.
const maxSetup = 64 << 10

// queryPointer asks an X server for the position of its pointer and which of the buttons 1 to 5 are pressed, as RFB's
// mask. https://www.x.org/releases/X11R7.7/doc/xproto/x11protocol.html
func queryPointer(conn net.Conn) (image.Point, byte, error) {
	order := binary.LittleEndian
	if _, err := conn.Write([]byte{'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil { // version 11, no credentials
		return image.Point{}, 0, err
	}
	in := bufio.NewReader(conn)
	head := make([]byte, 8)
	if _, err := io.ReadFull(in, head); err != nil {
		return image.Point{}, 0, err
	}
	size := 4 * int(order.Uint16(head[6:]))
	if head[0] != 1 || size < 40 || size > maxSetup {
		return image.Point{}, 0, protocolError("X refuses")
	}
	setup := make([]byte, size)
	if _, err := io.ReadFull(in, setup); err != nil {
		return image.Point{}, 0, err
	}
	// The vendor's name, padded to four bytes, and the formats of pixmaps come before the first screen.
	root := 32 + (int(order.Uint16(setup[16:]))+3)/4*4 + 8*int(setup[21])
	if root+4 > size {
		return image.Point{}, 0, protocolError("X has no screen")
	}
	const queryPointer = 38
	if _, err := conn.Write(append([]byte{queryPointer, 0, 2, 0}, setup[root:root+4]...)); err != nil {
		return image.Point{}, 0, err
	}
	reply := make([]byte, 32)
	for range maxNoise {
		if _, err := io.ReadFull(in, reply); err != nil {
			return image.Point{}, 0, err
		}
		if reply[0] == 1 {
			at := image.Pt(int(int16(order.Uint16(reply[16:]))), int(int16(order.Uint16(reply[18:]))))
			return at, byte(order.Uint16(reply[24:]) >> 8 & 0x1f), nil
		}
	}
	return image.Point{}, 0, protocolError("X does not answer")
}
