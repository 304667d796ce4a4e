package rest

import (
	"bufio"
	"errors"
	"io"
	"net/http"

	"hutch"
	"hutch/internal/stream"
)

// recording answers with the terminal's output so far, as asciicast. The recording is made from the sandbox's log of
// the terminal, which has the times. There is no other copy, so no recording outlives the terminal's sandbox.
func (h *Handler) recording(w http.ResponseWriter, r *http.Request) {
	if _, err := query(r); err != nil {
		h.fail(w, r, err)
		return
	}
	p, err := h.svc.Process(r.Context(), r.PathValue("id"), r.PathValue("process"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	sent := &begun{w: h.writer(w, r)}
	buf := bufio.NewWriterSize(sent, 64<<10)
	cast, err := stream.NewAsciicast(buf, p)
	if err == nil {
		w.Header().Set("Content-Type", stream.AsciicastType)
		w.Header().Set("Content-Disposition", `attachment; filename="terminal.cast"`)
		w.Header().Set("Cache-Control", "no-store")
		_, err = h.svc.Logs(r.Context(), hutch.LogsRequest{SandboxID: r.PathValue("id"), ProcessID: r.PathValue("process"), Times: true}, cast.Output)
	}
	if err == nil {
		err = errors.Join(cast.Close(), buf.Flush())
	}
	switch {
	case err == nil:
	case !sent.yes:
		w.Header().Del("Content-Disposition")
		h.fail(w, r, err)
	default:
		h.describe(r, err)          // for the log
		panic(http.ErrAbortHandler) // the client must see that the recording is incomplete
	}
}

// begun remembers whether anything was sent.
type begun struct {
	w   io.Writer
	yes bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.w.Write(p)
}
