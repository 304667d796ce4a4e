package jupyter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"hutch"
)

const asked = `{"header":{"msg_id":"a","msg_type":"execute_request","session":"s"},"content":{"code":"1"},"channel":"shell"}`

// parts is a binary message of the first protocol.
func parts(list ...string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(list)))
	at := 4 + 4*len(list)
	for _, p := range list {
		b = binary.BigEndian.AppendUint32(b, uint32(at))
		at += len(p)
	}
	return append(b, strings.Join(list, "")...)
}

// frameOf is a message of the second protocol.
func frameOf(channel, head, content string) []byte {
	return (&answer{channel: channel, parts: [4][]byte{[]byte(head), none, none, []byte(content)}}).frame()
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ    websocket.MessageType
		second bool
		b      []byte
	}{
		"text":              {websocket.MessageText, false, []byte(asked)},
		"text, second":      {websocket.MessageText, true, []byte(asked)},
		"with buffers":      {websocket.MessageBinary, false, parts(asked, "buffer")},
		"one part":          {websocket.MessageBinary, false, parts(asked)},
		"a date of numbers": {websocket.MessageText, false, []byte(strings.Replace(asked, `"session"`, `"date":1.5,"session"`, 1))},
		"no channel":        {websocket.MessageText, false, []byte(strings.Replace(asked, `,"channel":"shell"`, "", 1))},
		"second":            {websocket.MessageBinary, true, frameOf("shell", `{"msg_id":"a","msg_type":"execute_request","session":"s"}`, `{"code":"1"}`)},
		"second, one space": {websocket.MessageBinary, true, frameOf("shell", `{ "msg_id":"a","msg_type":"execute_request","session":"s"}`, `{"code":"1"}`)},
	} {
		m, err := decode(c.typ, c.b, c.second)
		if err != nil || m.channel != shell || m.header.ID != "a" || m.header.Type != "execute_request" || m.header.Session != "s" || string(m.content) != `{"code":"1"}` {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, b := range map[string]string{
		"no JSON": "{", "an array": "[]", "no header": `{"channel":"shell"}`, "no id": `{"header":{"msg_type":"x"},"channel":"shell"}`,
		"iopub":         strings.Replace(asked, "shell", "iopub", 1),
		"a long header": strings.Replace(asked, `"s"`, `"`+strings.Repeat("s", maxHeader)+`"`, 1),
	} {
		if m, err := decode(websocket.MessageText, []byte(b), false); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// A message with large buffers, which no code reads, keeps only its other parts in memory.
func TestBuffersAreNotKept(t *testing.T) {
	t.Parallel()
	list := []string{"shell", `{"msg_id":"a","msg_type":"b"}`, "{}", "{}", `{"code":"1"}`, strings.Repeat("x", 3<<20)}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(list)+1))
	at := 8 * (len(list) + 2)
	for _, p := range append(list, "") {
		b = binary.LittleEndian.AppendUint64(b, uint64(at))
		at += len(p)
	}
	m, err := decode(websocket.MessageBinary, append(b, strings.Join(list, "")...), true)
	if err != nil || string(m.content) != `{"code":"1"}` || cap(m.content) > 1000 {
		t.Errorf("%q in %d bytes, %v", m.content, cap(m.content), err)
	}
}

// Whatever a stranger sends, decode returns, and what it reads can be answered.
func FuzzDecode(f *testing.F) {
	f.Add(true, []byte(asked))
	f.Add(false, parts(asked, "buffer"))
	f.Add(true, frameOf("shell", `{"msg_id":"a","msg_type":"b"}`, `{}`))
	f.Add(true, bytes.Repeat([]byte{0xff}, 80))
	f.Add(false, []byte{0, 0, 0, 1, 0, 0, 0, 8})
	f.Fuzz(func(t *testing.T, second bool, b []byte) {
		for _, typ := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			m, err := decode(typ, b, second)
			if err != nil {
				continue
			}
			if len(m.parent) > maxHeader || m.header.ID == "" {
				t.Errorf("%+v", m)
			}
			a := newAnswer(iopub, "status", m.parent, nil, statusContent{busy})
			if !json.Valid(a.object()) {
				t.Errorf("%q", a.object())
			}
			back, err := decode(websocket.MessageBinary, (&answer{channel: shell, parts: [4][]byte{m.parent, none, none, none}}).frame(), true)
			if err != nil || back.header != m.header {
				t.Errorf("%+v, %v", back, err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("00112233-4455-6677-8899-aabbccddeeff")
	f.Add("../../")
	f.Fuzz(func(t *testing.T, id string) {
		p, ok := parse(id)
		if ok && (p.String() != id || hutch.CheckID(p.sandbox()) != nil || hutch.CheckID(p.context()) != nil) {
			t.Errorf("%q is %+v", id, p)
		}
	})
}

// Strangers can write labels, so only valid labels are kernels.
func TestLabelsOfStrangers(t *testing.T) {
	t.Parallel()
	sb := hutch.Sandbox{ID: "jupyter-0011223344556677", Labels: map[string]string{
		markLabel: mark, kernelLabel: `{"name":"python3"}`, kernelLabel + "x": `{"name":"python3"}`, kernelLabel + "0000000000000000": `{"name":"cobol"}`,
		kernelLabel + "1111111111111111": `null`, kernelLabel + "2222222222222222": `[`, kernelLabel + "89abcdef89abcdef": `{"name":"bash"}`,
		kernelLabel + "89ABCDEF89ABCDEF": `{"name":"bash"}`,
	}}
	if list := kernelsIn(sb); len(list) != 1 || list[0].String() != "00112233-4455-6677-89ab-cdef89abcdef" {
		t.Errorf("%+v", list)
	}
	sb.ID = "other"
	if list := kernelsIn(sb); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
