package inside

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"os"

	"hutch/internal/linux/tun"
)

// network gives the device to a stream until the stream ends. It ends the stream that had the device before.
func (p *pod) network(conn net.Conn) {
	p.mu.Lock()
	device, before := p.device, p.holder
	if device == nil {
		p.mu.Unlock()
		return
	}
	p.holder = conn
	p.taken.Broadcast()
	p.mu.Unlock()
	if before != nil {
		before.Close()
	}
	Packets(conn, device)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holder == conn {
		p.holder = nil
	}
}

// pump sends the packets of programs to the stream that has the device. While no stream has it, the packets wait.
func (p *pod) pump(device *os.File) {
	packet := make([]byte, 2+tun.MTU)
	for {
		n, err := device.Read(packet[2:])
		if err != nil {
			return
		}
		binary.BigEndian.PutUint16(packet, uint16(n))
		if conn := p.waitHolder(); conn != nil {
			if _, err := conn.Write(packet[:2+n]); err != nil {
				conn.Close()
			}
		}
	}
}

func (p *pod) waitHolder() net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.holder == nil {
		p.taken.Wait()
	}
	return p.holder
}

// Packets reads packets from a stream until it ends, and writes each packet with one write. A packet that does not fit
// is lost, as on any network.
func Packets(to io.Reader, device io.Writer) error {
	r := bufio.NewReaderSize(to, 256<<10)
	packet := make([]byte, 1<<16)
	for {
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint16(size[:])
		if _, err := io.ReadFull(r, packet[:n]); err != nil {
			return err
		}
		if n > 0 {
			device.Write(packet[:n])
		}
	}
}
