package httpio

import "net/http"

// Duplex lets a handler of HTTP/1.1 answer while the body of its request is still arriving: otherwise the beginning of the
// answer would end the body. The handler calls end last.
//
// What is left of the body is read there. net/http would do that after the handler, and at the end of the body would begin
// to read the connection in the background, which it only ends before: then the connection's next request fails.
func Duplex(w http.ResponseWriter, r *http.Request) (end func()) {
	c := http.NewResponseController(w)
	c.EnableFullDuplex() // an error says that there is nothing to enable, as in HTTP/2
	return func() {
		c.Flush() // a client can wait for the answer before it sends the rest
		r.Body.Close()
	}
}
