package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/wire"
)

const (
	maxPorts = 512 // most connections to servers at once, so that some remain for other requests
	dialTime = 5 * time.Second
)

// port connects the caller's connection to a server inside, until the connection ends.
func (c *conn) port(w *wire.Writer, port int) {
	if c.agent.ports.Add(1) > maxPorts {
		c.agent.ports.Add(-1)
		refuse(w, hutch.Errorf(hutch.Exhausted, "the sandbox has %d connections with its servers, its limit: close some", maxPorts))
		return
	}
	defer c.agent.ports.Add(-1)
	server, err := dialServer(port)
	if err != nil {
		refuse(w, err)
		return
	}
	defer server.Close()
	if c.in.Buffered() > 0 || w.WriteJSON(wire.TypeReply, struct{}{}) != nil {
		return // the client sends nothing before it has the reply
	}
	defer c.agent.idle.touch()
	relay(c.Conn, server)
}

// dialServer connects to the server on a port: most servers listen on loopback or on every address, some only on the
// sandbox's own.
func dialServer(port int) (net.Conn, error) {
	if err := hutch.CheckPort(port); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	var d net.Dialer
	var errs []error
	for _, host := range hosts() {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	if ctx.Err() != nil {
		return nil, hutch.Errorf(hutch.NotFound, "the server at port %d takes no connection", port)
	}
	return nil, hutch.Errorf(hutch.NotFound, "nothing listens on port %d", port).Because(errors.Join(errs...))
}

// hosts returns the addresses that a server can listen on.
func hosts() []string {
	list := []string{"127.0.0.1", "::1"}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			list = append(list, ip.IP.String())
		}
	}
	return list
}

// relay copies bytes both ways. When one direction ends, it passes on that end, and the other direction continues. An
// error in one direction ends both.
func relay(daemon, server net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyDirection(daemon, server)
	}()
	copyDirection(server, daemon)
	drainServer(daemon, server, done)
}

// drainServer waits for the rest of a server's output after the daemon has closed its direction. If the daemon has
// disconnected completely, waiting is useless. drainServer checks that every second, because nothing else shows it
// while the server is silent.
func drainServer(daemon, server net.Conn, done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if peerClosed(daemon) {
			daemon.Close()
			server.Close()
		}
	}
}

// peerClosed reports whether the other end of a socket is closed in both directions.
func peerClosed(c net.Conn) bool {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		gone = err == nil && poll[0].Revents != 0
	})
	return gone || err != nil
}

// copyDirection copies one direction.
func copyDirection(to, from net.Conn) {
	err := move(to, from)
	if err == nil {
		err = to.(interface{ CloseWrite() error }).CloseWrite()
	}
	if err != nil {
		to.Close()
		from.Close()
	}
}

// move copies small amounts itself, which is faster than the kernel's splice, and uses the kernel for more.
func move(to, from net.Conn) error {
	words := make([]byte, 8<<10)
	for {
		n, err := from.Read(words)
		if _, werr := to.Write(words[:n]); werr != nil {
			return werr
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case n == len(words):
			_, err := io.Copy(to, from)
			return err
		}
	}
}

// tables are the kernel's lists of sockets.
var tables = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// listening lists the ports that a program listens on.
func listening() ([]int, error) {
	list := []int{}
	for _, table := range tables {
		f, err := os.Open(table)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		list = append(list, listeners(f)...)
		f.Close()
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// listeners reads a table. The columns of a row are: number, local address, remote address, state.
func listeners(r io.Reader) (list []int) {
	const listen = "0A"
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != listen {
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(port, 16, 16); err == nil && n > 0 {
			list = append(list, int(n))
		}
	}
	return list
}
