package broker

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"

	"hutch/internal/secret"
)

// answer masks the host's answer.
func (x *exchange) answer(res *http.Response) error {
	made := requestOf(res.Request)
	if err := decode(res); err != nil {
		return err
	}
	res.Header.Del("Alt-Svc") // the header announces another way to the host, on which requests would not be brokered
	scrub(made.mask, res.Header)
	res.Body = cover(made.mask, res)
	x.report(made, res.StatusCode, nil)
	return nil
}

// decode decompresses a body that the host has compressed although the request did not ask for it.
func decode(res *http.Response) error {
	coding := strings.ToLower(strings.Join(res.Header.Values("Content-Encoding"), ","))
	switch {
	case coding == "", coding == "identity", res.Request.Method == http.MethodHead, res.ContentLength == 0:
		return nil
	case coding != "gzip" && coding != "x-gzip":
		return fmt.Errorf("it answers in the encoding %.40q, which was not asked for", coding)
	}
	res.Body = &unzipped{ReadCloser: res.Body}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	return nil
}

// unzipped reads the header of a compressed body only on the first read.
type unzipped struct {
	io.ReadCloser
	clear *gzip.Reader
}

// Read implements io.Reader.
func (u *unzipped) Read(p []byte) (int, error) {
	if u.clear == nil {
		clear, err := gzip.NewReader(u.ReadCloser)
		if err != nil {
			return 0, err
		}
		u.clear = clear
	}
	return u.clear.Read(p)
}

// scrub replaces credentials in headers.
func scrub(mask *secret.Redactor, h http.Header) {
	for name, values := range h {
		if clean := mask.String(name); clean != name { // a name can repeat a credential too
			delete(h, name)
			continue
		}
		for i := range values {
			values[i] = mask.String(values[i])
		}
	}
}

// cover masks a body and its trailers. An upgraded connection's body is also written to.
func cover(mask *secret.Redactor, res *http.Response) io.ReadCloser {
	body := mask.Mask(res.Body)
	if w, ok := res.Body.(io.Writer); ok {
		return struct {
			io.ReadCloser
			io.Writer
		}{body, w}
	}
	return &bodyWithEnd{body, func() { scrub(mask, res.Trailer) }}
}

// bodyWithEnd runs a function at the end of a body.
type bodyWithEnd struct {
	io.ReadCloser
	end func()
}

// Read implements io.Reader.
func (t *bodyWithEnd) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		t.end()
	}
	return n, err
}

// maskingWriter masks the headers of preliminary answers, such as 103, which no hook sees.
type maskingWriter struct {
	http.ResponseWriter
	made *request
}

// WriteHeader implements http.ResponseWriter.
func (s *maskingWriter) WriteHeader(status int) {
	if status < http.StatusOK {
		scrub(s.made.mask, s.Header())
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *maskingWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
