package inside

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/hashicorp/yamux"
)

// Multiplexing returns the configuration of both ends of a relay. The backlog also limits the memory of the
// daemon for streams that a pod opens; the daemon never accepts these.
func Multiplexing() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	c.AcceptBacklog = 64
	c.MaxStreamWindowSize = 512 << 10
	c.KeepAliveInterval = 30 * time.Second
	c.ConnectionWriteTimeout = time.Minute
	return c
}

// Relay connects each stream that comes through standard input and output to the first process.
func Relay() error {
	session, err := yamux.Server(standard{}, Multiplexing())
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		stream, err := session.AcceptStream()
		if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			defer stream.Close()
			if conn, err := net.Dial("unix", podSocket); err == nil {
				splice(stream, conn)
			}
		}()
	}
}

// standard is standard input and output as one connection.
type standard struct{}

func (standard) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (standard) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (standard) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }

// splice copies in both directions until both ends have ended, and closes both.
func splice(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(a, b)
		closeWrite(a)
	}()
	io.Copy(b, a)
	closeWrite(b)
	<-done
}

// closeWrite ends the direction in which we write. A stream of the multiplexer has no CloseWrite, but its Close ends
// only that direction: the stream can still be read.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	c.Close()
}
