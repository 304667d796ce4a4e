package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

func TestFramesRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	frames := []struct {
		t       Type
		payload string
	}{
		{TypeStdinEnd, ""}, {TypeStdin, "x"}, {TypeRequest, strings.Repeat("a", 4096)}, {TypeReply, strings.Repeat("b", MaxReply)},
		{TypeReply, "short after long"}, {TypeStdout, "\x00\xff\xfe"},
	}
	for _, f := range frames {
		if err := w.Write(f.t, []byte(f.payload)); err != nil {
			t.Fatal(err)
		}
	}
	for name, in := range map[string]io.Reader{
		"at once":   bytes.NewReader(buf.Bytes()),
		"by byte":   iotest.OneByteReader(bytes.NewReader(buf.Bytes())),
		"with ends": iotest.DataErrReader(bytes.NewReader(buf.Bytes())),
	} {
		r := NewReader(in, MaxReply)
		for i, f := range frames {
			if ty, payload, err := r.Next(); ty != f.t || string(payload) != f.payload || err != nil {
				t.Fatalf("%s: frame %d is %q of %d bytes, %v", name, i, ty, len(payload), err)
			}
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: %v at the end", name, err)
		}
	}
}

func TestAllWaysOfWritingAreOne(t *testing.T) {
	var plain, behind, large bytes.Buffer
	for _, payload := range []string{"", "x", strings.Repeat("file", FileChunk/4)} {
		NewWriter(&plain).Write(TypeData, []byte(payload))
		NewWriter(&behind).WriteBehind(TypeData, append(make([]byte, HeaderSize), payload...))
		NewWriter(&large).WriteLarge(TypeData, []byte(payload))
	}
	if !bytes.Equal(plain.Bytes(), behind.Bytes()) || !bytes.Equal(plain.Bytes(), large.Bytes()) {
		t.Errorf("%d bytes differ from %d or %d", plain.Len(), behind.Len(), large.Len())
	}
}

// After a file, a connection can be idle for hours.
func TestReaderLetsGoOfFiles(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	w.Write(TypeData, make([]byte, FileChunk))
	w.Write(TypeReply, []byte("{}"))
	r := NewReader(&buf, MaxReply)
	for range 2 {
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.buf) > MaxChunk {
		t.Errorf("%d bytes are kept", cap(r.buf))
	}
}

func TestOutputRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	w.WriteOutput(TypeStderr, 1<<40, []byte("data"))
	w.WriteCount(TypeGap, 7)
	r := NewReader(&buf, MaxReply)
	_, payload, _ := r.Next()
	if cursor, data, err := parseOutput(payload); cursor != 1<<40 || string(data) != "data" || err != nil {
		t.Errorf("%d %q %v", cursor, data, err)
	}
	_, payload, _ = r.Next()
	if n, err := parseCount(payload); n != 7 || err != nil {
		t.Errorf("%d %v", n, err)
	}
}

func TestNumbersOutOfRange(t *testing.T) {
	number := func(n uint64, data string) []byte { return append(binary.BigEndian.AppendUint64(nil, n), data...) }
	for _, payload := range [][]byte{nil, make([]byte, 7), number(3, "four"), number(math.MaxUint64, ""), number(1<<63, ""), number(maxCount+1, "")} {
		if c, data, err := parseOutput(payload); err == nil {
			t.Errorf("output %x: cursor %d, %q", payload, c, data)
		}
	}
	for _, payload := range [][]byte{nil, make([]byte, 7), make([]byte, 9), number(math.MaxUint64, ""), number(maxCount+1, "")} {
		if n, err := parseCount(payload); err == nil {
			t.Errorf("count %x: %d", payload, n)
		}
	}
}

func TestBrokenFrames(t *testing.T) {
	for input, want := range map[string]error{
		"":                         io.EOF,
		"r":                        io.ErrUnexpectedEOF,
		"r\x00\x00\x00":            io.ErrUnexpectedEOF,
		"r\x00\x00\x00\x01":        io.ErrUnexpectedEOF,
		"r\x00\x00\x00\x02x":       io.ErrUnexpectedEOF,
		"r\x00\x10\x00\x01":        nil, // too large: a specific error
		"r\xff\xff\xff\xffpayload": nil,
	} {
		_, _, err := NewReader(strings.NewReader(input), MaxReply).Next()
		if err == nil || want != nil && err != want {
			t.Errorf("%q: %v, want %v", input, err, want)
		}
	}
}

// A header allocates nothing beyond what arrives.
func TestClaimedSizeIsNotAllocated(t *testing.T) {
	input := "R" + string(binary.BigEndian.AppendUint32(nil, MaxRequest)) + "little"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := NewReader(strings.NewReader(input), MaxRequest).Next()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != io.ErrUnexpectedEOF || used > 1<<20 {
		t.Errorf("%v after %d bytes", err, used)
	}
}

func TestWritersDoNotMix(t *testing.T) {
	pr, pw := io.Pipe()
	w := NewWriter(pw)
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				w.Write(Type('a'+i), bytes.Repeat([]byte{byte('a' + i)}, n))
			}
		})
	}
	go func() { wg.Wait(); pw.Close() }()
	r, count := NewReader(pr, MaxReply), 0
	for {
		ty, payload, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil || strings.Trim(string(payload), string(ty)) != "" {
			t.Fatalf("%q %q %v", ty, payload, err)
		}
		count++
	}
	if count != writers*each {
		t.Errorf("%d frames", count)
	}
}
