package httpio

import (
	"net/http"
	"time"
)

// Duplex lets a handler of HTTP/1.1 answer while the body of its request is still arriving: otherwise the beginning of the
// answer would end the body. The handler calls end last.
//
// end also reads the rest of the body. Otherwise net/http would do that after the handler. At the end of the body it
// would then begin to read the connection in the background, at a time when it no longer stops such a read, so the
// connection's next request would fail.
func Duplex(w http.ResponseWriter, r *http.Request) (end func()) { return duplex(w, r, drainTime) }

func duplex(w http.ResponseWriter, r *http.Request, limit time.Duration) (end func()) {
	http.NewResponseController(w).EnableFullDuplex() // an error says that there is nothing to enable, as in HTTP/2
	return func() {
		if r.ProtoMajor > 1 {
			return
		}
		if body, ok := r.Body.(*Body); ok {
			body.End() // from now on, the limit for the rest of a body applies
		}
		drain(w, r.Body, limit)
		if r.Body.Close() != nil {
			panic(http.ErrAbortHandler) // net/http would take the rest for the next request
		}
	}
}
