package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// manner is a protocol, as far as the client's first bytes show it.
type manner int

const (
	other  manner = iota
	secure        // TLS
	plain         // HTTP
)

const recordHandshake = 22 // the first byte of TLS

const (
	helloTime = 20 * time.Second // for a client to say what it requests
	maxHello  = 64 << 10
	maxLine   = 8 << 10 // bytes of a request that are read to recognize it
)

// encryptedHello is the extension that hides a second name from us. Browsers also send a dummy of it, which only the
// server can distinguish from a real one.
const encryptedHello = 0xfe0d

var (
	errNoName    = errors.New("the TLS hello has no server name: a rule by name needs the name")
	errEncrypted = errors.New("the hello of TLS is encrypted, or pretends to be (Chromium: --disable-features=EncryptedClientHello): the name that is meant cannot be told")
	errNoHello   = errors.New("what began like TLS is none")
	errHelloRead = errors.New("the hello is read")
)

// hello reads the TLS ClientHello from c and returns the name in it, in lower case. The returned connection reads the
// same bytes again.
func hello(c net.Conn) (name string, again net.Conn, err error) {
	var read bytes.Buffer
	var extensions []uint16
	recorder := &listener{Conn: c, r: io.TeeReader(io.LimitReader(c, maxHello), &read)}
	err = tls.Server(recorder, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, extensions = strings.ToLower(h.ServerName), h.Extensions
		return nil, errHelloRead
	}}).Handshake()
	again = &resumed{c, io.MultiReader(&read, c)}
	switch {
	case !errors.Is(err, errHelloRead):
		return "", again, errNoHello
	case slices.Contains(extensions, encryptedHello):
		return name, again, errEncrypted
	case name == "":
		return "", again, errNoName
	}
	return name, again, nil
}

// listener is a connection that never answers.
type listener struct {
	net.Conn
	r io.Reader
}

func (l *listener) Read(b []byte) (int, error)  { return l.r.Read(b) }
func (l *listener) Write(b []byte) (int, error) { return len(b), nil }

// resumed is a connection whose first bytes were read already.
type resumed struct {
	net.Conn
	r io.Reader
}

func (r *resumed) Read(b []byte) (int, error) { return r.r.Read(b) }
func (r *resumed) CloseWrite() error          { return closeWrite(r.Conn) }

// alert is the TLS alert for a refused name, so that a client reports more than a closed connection.
var alert = []byte{21, 3, 1, 0, 2, 2, 49} // fatal, access_denied
