package jupyter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/coder/websocket"

	"hutch"
)

// binaryProtocol is the name of Jupyter's second sub-protocol. Its messages are binary: the number of offsets; the
// offsets, each 8 bytes, little endian; then the parts between them: the channel, the header, the parent's header, the
// metadata, the content, and buffers. In the first protocol a message is a JSON object. If it has buffers, it is
// binary: the number of parts and their offsets, each 4 bytes, big endian; then the parts, of which the object is the
// first.
const binaryProtocol = "v1.kernel.websocket.jupyter.org"

// Channels of messages.
const (
	shell   = "shell"
	control = "control"
	stdin   = "stdin"
	iopub   = "iopub"
)

// version is the version of Jupyter's messaging protocol.
const version = "5.3"

// Bounds of a message that clients send.
const (
	maxFrame  = 4 << 20 // bytes
	maxHeader = 4 << 10 // bytes: each answer has it
	maxParts  = 1 << 10
)

type header struct {
	ID      string `json:"msg_id"`
	Type    string `json:"msg_type"`
	Session string `json:"session"`
}

// ourHeader is the header of the server's messages. Other fields of clients are not read: some send a number as the
// date.
type ourHeader struct {
	header
	Username string `json:"username"`
	Date     string `json:"date"`
	Version  string `json:"version"`
}

// message is a message of a client.
type message struct {
	channel string
	header  header
	parent  json.RawMessage // the header as received: the parent of the answers
	content json.RawMessage
}

func unreadable(format string, args ...any) error {
	return hutch.Errorf(hutch.Invalid, format, args...)
}

// decode reads a message of a client.
func decode(typ websocket.MessageType, b []byte, second bool) (m message, err error) {
	var head json.RawMessage
	switch {
	case second && typ == websocket.MessageBinary:
		head, err = m.decodeParts(b)
	default:
		if typ == websocket.MessageBinary {
			if b, err = firstPart(b); err != nil {
				return m, err
			}
		}
		head, err = m.decodeObject(b)
	}
	if err != nil {
		return m, err
	}
	return m, m.readHeader(head)
}

// decodeObject reads the object of the first protocol, and returns its header.
func (m *message) decodeObject(b []byte) (json.RawMessage, error) {
	var o struct {
		Channel string          `json:"channel"`
		Header  json.RawMessage `json:"header"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, unreadable("the message is not an object in JSON")
	}
	m.channel, m.content = o.Channel, o.Content
	return o.Header, nil
}

// firstPart returns the object of a binary message of the first protocol.
func firstPart(b []byte) ([]byte, error) {
	at := func(i uint32) uint64 { return uint64(binary.BigEndian.Uint32(b[4*i:])) }
	if len(b) < 8 {
		return nil, unreadable("the binary message has no parts")
	}
	n := at(0)
	if n < 1 || n > maxParts || uint64(len(b)) < 4*(n+1) {
		return nil, unreadable("the binary message cannot have %d parts", n)
	}
	begin, end := at(1), uint64(len(b))
	if n > 1 {
		end = at(2)
	}
	if begin < 4*(n+1) || begin > end || end > uint64(len(b)) {
		return nil, unreadable("the first part of the binary message is outside of it")
	}
	return b[begin:end], nil
}

// decodeParts reads a message of the second protocol, and returns its header.
func (m *message) decodeParts(b []byte) (json.RawMessage, error) {
	at := func(i uint64) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if len(b) < 8 {
		return nil, unreadable("the binary message has no parts")
	}
	n := at(0) // the last offset is the end of the last part
	if n < 6 || n > maxParts || uint64(len(b)) < 8*(n+1) {
		return nil, unreadable("the binary message cannot have %d offsets", n)
	}
	for i := range n {
		if at(i+1) > uint64(len(b)) || at(i+1) < 8*(n+1) || i > 0 && at(i+1) < at(i) {
			return nil, unreadable("a part of the binary message is outside of it")
		}
	}
	part := func(i uint64) []byte { return b[at(i+1):at(i+2)] }
	m.channel, m.content = string(part(0)), bytes.Clone(part(4)) // only the content is kept: the other parts can be large
	if !json.Valid(m.content) {
		return nil, unreadable("the content of the message is not in JSON")
	}
	return part(1), nil
}

// readHeader reads the header, which is bounded because each answer repeats it.
func (m *message) readHeader(head json.RawMessage) error {
	if len(head) > maxHeader {
		return unreadable("the header of the message has %d bytes: at most %d are allowed", len(head), maxHeader)
	}
	if json.Unmarshal(head, &m.header) != nil || m.header.ID == "" || m.header.Type == "" {
		return unreadable("the message has no header with msg_id and msg_type")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, head); err != nil {
		return unreadable("the header of the message is not in JSON")
	}
	m.parent = compact.Bytes()
	switch m.channel {
	case shell, control, stdin:
		return nil
	case "": // as from Jupyter's gateway client
		m.channel = shell
		if m.header.Type == "input_reply" {
			m.channel = stdin
		}
		return nil
	}
	return unreadable("the message names the channel %.40q: a client sends on shell, control or stdin", m.channel)
}

// answer is a message to clients, encoded once for all clients that use the same protocol.
type answer struct {
	channel, typ string
	parts        [4][]byte // header, parent's header, metadata, content
	first        []byte
	second       []byte
}

var none = json.RawMessage("{}")

// newAnswer encodes the parts of a message. parent is the header of the request that it is about; nil for a message
// about no request.
func newAnswer(channel, typ string, parent, metadata json.RawMessage, content any) *answer {
	head, _ := json.Marshal(ourHeader{ // strings can always be encoded
		header{ID: hutch.NewID("m"), Type: typ, Session: "hutch"}, "hutch", date{time.Now()}.String(), version,
	})
	if parent == nil {
		parent = none
	}
	if metadata == nil {
		metadata = none
	}
	body, err := json.Marshal(content)
	if err != nil {
		body = none
	}
	return &answer{channel: channel, typ: typ, parts: [4][]byte{head, parent, metadata, body}}
}

// object returns the message in the first protocol.
func (a *answer) object() []byte {
	if a.first != nil {
		return a.first
	}
	var b bytes.Buffer
	for i, name := range []string{"header", "parent_header", "metadata", "content"} {
		b.WriteString(map[bool]string{true: `{"`, false: `,"`}[i == 0] + name + `":`)
		b.Write(a.parts[i])
	}
	var head header
	json.Unmarshal(a.parts[0], &head)                                                                                       // newAnswer has written it
	rest, _ := json.Marshal(map[string]any{"msg_type": a.typ, "channel": a.channel, "buffers": []any{}, "msg_id": head.ID}) // strings can always be encoded
	b.WriteByte(',')
	b.Write(rest[1:])
	a.first = b.Bytes()
	return a.first
}

// frame returns the message in the second protocol.
func (a *answer) frame() []byte {
	if a.second != nil {
		return a.second
	}
	parts := append([][]byte{[]byte(a.channel)}, a.parts[:]...)
	at := uint64(8 * (len(parts) + 2))
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(parts)+1))
	for _, part := range parts {
		b = binary.LittleEndian.AppendUint64(b, at)
		at += uint64(len(part))
	}
	b = binary.LittleEndian.AppendUint64(b, at)
	for _, part := range parts {
		b = append(b, part...)
	}
	a.second = b
	return b
}
