package egress

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// echConfig is a key for an encrypted hello, as a server publishes it in the DNS: the visible name is the allowed
// one.
func echConfig(t testing.TB) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte{7, 0, 0x20}
	body = append(binary.BigEndian.AppendUint16(body, 32), key.PublicKey().Bytes()...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, byte(len(allowedName)))
	body = append(append(body, allowedName...), 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// helloOf is the first message of a client.
func helloOf(t testing.TB, config *tls.Config) []byte {
	near, far := net.Pipe()
	defer near.Close()
	go tls.Client(far, config).Handshake()
	head := make([]byte, 5)
	if _, err := io.ReadFull(near, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(near, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// recorded is a connection with recorded input.
type recorded struct {
	net.Conn
	r io.Reader
}

func (r *recorded) Read(b []byte) (int, error)         { return r.r.Read(b) }
func (r *recorded) Write(b []byte) (int, error)        { return len(b), nil }
func (r *recorded) Close() error                       { return nil }
func (r *recorded) SetDeadline(t time.Time) error      { return nil }
func (r *recorded) SetReadDeadline(t time.Time) error  { return nil }
func (r *recorded) SetWriteDeadline(t time.Time) error { return nil }

// A hello split into many small records is the same hello.
func TestHelloInPieces(t *testing.T) {
	t.Parallel()
	said := helloOf(t, &tls.Config{ServerName: "API.example.com"})
	var pieces bytes.Buffer
	for body := said[5:]; len(body) > 0; {
		n := min(7, len(body))
		pieces.Write(append([]byte{22, 3, 1, 0, byte(n)}, body[:n]...))
		body = body[n:]
	}
	sent := pieces.String()
	name, again, err := hello(&recorded{r: &pieces})
	if name != allowedName || err != nil {
		t.Errorf("the name is %q, %v", name, err)
	}
	if got, _ := io.ReadAll(again); string(got) != sent {
		t.Error("what was read is not there again")
	}
}

// For any input there is a name or an error, and no byte is lost.
func FuzzHello(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: allowedName}))
	f.Add(helloOf(f, &tls.Config{InsecureSkipVerify: true}))
	f.Add(helloOf(f, &tls.Config{ServerName: evilName, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(f)}))
	f.Add([]byte{22, 3, 1, 255, 255})
	f.Fuzz(func(t *testing.T, said []byte) {
		name, again, err := hello(&recorded{r: bytes.NewReader(said)})
		if err == nil && (name == "" || name != strings.ToLower(name)) {
			t.Errorf("no error, and the name %q", name)
		}
		if got, _ := io.ReadAll(again); !bytes.Equal(got, said) {
			t.Errorf("%d bytes became %d", len(said), len(got))
		}
	})
}

// Recognizing a protocol consumes nothing, and mistakes no HTTP request for another protocol.
func FuzzTell(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\n", "\r\n\r\nget / http/1.0\n", "\x16\x03\x01", "SSH-2.0-x\r\n", "PING\r\n", "\x00\x01", "GET /\xff HTTP/1.1\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		c := newBuffered(&recorded{r: bytes.NewReader(said)})
		how, err := detectProtocol(c.r)
		line, _, _ := bytes.Cut(bytes.TrimLeft(said, "\r\n"), []byte("\n"))
		text := len(said) > 0 && said[0] != recordHandshake && bytes.IndexByte(line, 0) < 0
		if request, _, _ := bytes.Cut(line, []byte(" ")); text && printable(request) && bytes.Contains(bytes.ToUpper(line), []byte("HTTP/1")) && how == other && err == nil {
			t.Errorf("%q is told to be other than HTTP", said)
		}
		if got, _ := io.ReadAll(c); !bytes.Equal(got, said) {
			t.Errorf("%d bytes became %d", len(said), len(got))
		}
	})
}

func printable(b []byte) bool {
	return len(bytes.Trim(b, "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~")) == 0 && !bytes.ContainsFunc(b, func(c rune) bool { return c < '!' || c > '~' })
}

// TestWhatCannotBeTold: a connection to a name does not become a relay for input that no honest client sends.
func TestWhatCannotBeTold(t *testing.T) {
	for said, hidden := range map[string]bool{
		"\x15\x03\x01\x00\x02\x01\x00\x16\x03\x01": true, // an alert, and then a hello that would be skipped
		"\x14\x03\x03\x00\x01\x01":                 true,
		"\x17\x03\x03":                             true,
		"\r\n\x16\x03\x01":                         true,
		"\r\n\x15":                                 true,
		"\x16\x03\x01":                             false,
		"SSH-2.0-x\r\n":                            false,
		"\x00\x03\x00\x01":                         false,
	} {
		if _, err := detectProtocol(newBuffered(&recorded{r: bytes.NewReader([]byte(said))}).r); (err == errHidden) != hidden {
			t.Errorf("%q: %v", said, err)
		}
	}
}
