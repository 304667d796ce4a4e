package httpio

import (
	"net/http"
	"time"
)

// Duplex lets a handler of HTTP/1.1 answer while the body of its request is still arriving: otherwise the beginning of the
// answer would end the body. The handler calls end last.
//
// The rest of the body is read there. net/http would do that after the handler, and at the end of the body would begin
// to read the connection in the background, which it only ends before: then the connection's next request fails.
func Duplex(w http.ResponseWriter, r *http.Request) (end func()) { return duplex(w, r, drainTime) }

func duplex(w http.ResponseWriter, r *http.Request, limit time.Duration) (end func()) {
	http.NewResponseController(w).EnableFullDuplex() // an error says that there is nothing to enable, as in HTTP/2
	return func() {
		if r.ProtoMajor > 1 {
			return
		}
		if body, ok := r.Body.(*Body); ok {
			body.End() // from now on the limit is that of the rest
		}
		drain(w, r.Body, limit)
		if r.Body.Close() != nil {
			panic(http.ErrAbortHandler) // net/http would take the rest for the next request
		}
	}
}
