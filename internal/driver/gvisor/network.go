package gvisor

import (
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/linux/tun"
)

// waiting is how many bytes of packets can wait for their reader if this process is root; otherwise the system's
// default applies.
const waiting = 4 << 20

var _ driver.Networked = (*instance)(nil)

// Network implements driver.Networked.
func (i *instance) Network() (*os.File, error) {
	if !i.procs.Network {
		return nil, hutch.Errorf(hutch.Unavailable, "the sandbox was made without a network: make a new one")
	}
	file, err := i.endOfDevice(contract.NetworkFD)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the network of the sandbox cannot be reached: look at its status, or destroy it and make a new one").Because(err)
	}
	return file, nil
}

// endOfDevice returns a copy of one of the two sockets.
func (i *instance) endOfDevice(number int) (*os.File, error) {
	file, err := i.sentry.File(number)
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err == nil {
		conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, waiting) })
	}
	return file, err
}

// links returns the network interfaces of a sandbox: loopback, and the device if it has one.
func links(device bool) map[string]any {
	args := map[string]any{"LoopbackLinks": []any{map[string]any{
		"Name":      "lo",
		"Addresses": addresses(netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")),
		"Routes":    routes(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")),
	}}}
	if device {
		args["FDBasedLinks"] = []any{eth0}
	}
	return args
}

// eth0 has no link address, so its packets have no link header. Nothing in between can damage packets, so checksums
// are off.
var eth0 = map[string]any{
	"Name": tun.Name, "MTU": tun.MTU, "NumChannels": 1, "ProcessorsPerChannel": 1,
	"Addresses":         addresses(tun.Inside4, tun.Inside6),
	"Routes":            routes(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")),
	"RXChecksumOffload": true, "TXChecksumOffload": true,
	"QDisc": fifo,
}

// fifo is gVisor's queue for packets that find the socket full. Without a queue, such a datagram would block its
// sender permanently.
const fifo = 1

func addresses(list ...netip.Prefix) (a []any) {
	for _, p := range list {
		a = append(a, map[string]any{"Address": net.IP(p.Addr().AsSlice()), "PrefixLen": p.Bits()})
	}
	return a
}

func routes(list ...netip.Prefix) (r []any) {
	for _, p := range list {
		to := net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		r = append(r, map[string]any{"Destination": to})
	}
	return r
}
