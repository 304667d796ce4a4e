package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Path is the kernel's file for the creation of devices. A descriptor of it belongs to the network namespace of the
// thread that opened the file.
const Path = "/dev/net/tun"

// ErrNone is the error if the machine does not offer TUN devices, or forbids them.
var ErrNone = errors.New("no way to " + Path)

// Create creates the device with fd, a descriptor of Path, in the network namespace of the calling thread. The thread
// needs CAP_NET_ADMIN over that namespace. From then on, each read or write of the descriptor transfers one packet, and
// does not block. The device exists as long as the descriptor is open. The error is ErrNone if fd belongs to another
// file.
func Create(fd int) error {
	if err := setUp(fd); errors.Is(err, unix.ENOTTY) {
		return ErrNone
	} else if err != nil {
		return fmt.Errorf("make the network device: %w", err)
	}
	return nil
}

// Check returns an error if devices cannot be created. It creates no device.
func Check() error {
	fd, err := open()
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func open() (int, error) {
	fd, err := unix.Open(Path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	for _, none := range []error{unix.ENOENT, unix.EACCES, unix.EPERM, unix.ENODEV, unix.ENXIO} {
		if errors.Is(err, none) {
			return -1, fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: Path, Err: err}
	}
	return fd, nil
}

func setUp(fd int) error {
	request, err := unix.NewIfreq(Name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return err
	}
	index, err := index()
	if err != nil {
		return err
	}
	return configure(index)
}

// Is reports whether a file is a descriptor of the device that Create set up.
func Is(file *os.File) (is bool) {
	conn, err := file.SyscallConn()
	if err != nil {
		return false
	}
	conn.Control(func(fd uintptr) {
		request, err := unix.NewIfreq("")
		is = err == nil && unix.IoctlIfreq(int(fd), unix.TUNGETIFF, request) == nil && request.Name() == Name
	})
	return is
}

func index() (uint32, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq(Name)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(s, unix.SIOCGIFINDEX, request)
	return request.Uint32(), err
}

// configure brings the device up with its addresses and makes it the default route. On a kernel without IPv6, the
// sandbox has no IPv6 either.
func configure(index uint32) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	for _, m := range []struct {
		message  []byte
		optional bool
	}{
		{noAddress(index), true}, // gVisor does not know this request, but makes no such address anyway
		{linkUp(index), false},
		{address(index, unix.AF_INET, Inside4.Addr().AsSlice(), Inside4.Bits()), false},
		{route(index, unix.AF_INET), false},
		{address(index, unix.AF_INET6, Inside6.Addr().AsSlice(), Inside6.Bits()), true},
		{route(index, unix.AF_INET6), true},
	} {
		if err := ask(s, m.message); err != nil && !m.optional {
			return err
		}
	}
	return nil
}

// noAddress turns off automatic IPv6 addresses, so that the kernel does not search for routers.
func noAddress(index uint32) []byte {
	const noMode = 1 // IN6_ADDR_GEN_MODE_NONE
	info := unix.IfInfomsg{Index: int32(index)}
	six := attribute(unix.AF_INET6, attribute(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{noMode}))
	return message(unix.RTM_NEWLINK, bytesOf(&info), attribute(unix.IFLA_AF_SPEC, six))
}

// linkUp brings the device up.
func linkUp(index uint32) []byte {
	info := unix.IfInfomsg{Index: int32(index), Flags: unix.IFF_UP, Change: unix.IFF_UP}
	return message(unix.RTM_NEWLINK, bytesOf(&info), attribute(unix.IFLA_MTU, number(MTU)))
}

func address(index uint32, family uint8, a []byte, bits int) []byte {
	info := unix.IfAddrmsg{Family: family, Prefixlen: uint8(bits), Index: index, Flags: unix.IFA_F_NODAD}
	return message(unix.RTM_NEWADDR, bytesOf(&info), attribute(unix.IFA_LOCAL, a), attribute(unix.IFA_ADDRESS, a))
}

// route returns the default route through the device, without a gateway. gVisor requires the destination, which is all
// zeros.
func route(index uint32, family uint8) []byte {
	all := net.IPv4zero.To4()
	if family == unix.AF_INET6 {
		all = net.IPv6zero
	}
	info := unix.RtMsg{
		Family: family, Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT,
		Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
	}
	return message(unix.RTM_NEWROUTE, bytesOf(&info), attribute(unix.RTA_DST, all), attribute(unix.RTA_OIF, number(index)))
}

// ask sends a message of rtnetlink(7) and waits for the response.
func ask(s int, message []byte) error {
	if err := unix.Sendto(s, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("an answer of %d bytes from the kernel", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return os.NewSyscallError("rtnetlink", unix.Errno(-code))
	}
	return nil
}

func message(kind uint16, info []byte, attributes ...[]byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr)
	b = append(b, info...)
	for _, a := range attributes {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	return b
}

// attribute encodes a length, a kind and a value, padded to a multiple of four bytes.
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// bytesOf returns the memory of a kernel struct.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }
