package browser

import (
	"bytes"
	"image/png"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestPage(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<body><input value=old><button onclick="document.title = document.querySelector('input').value">go</button>`))
	}))
	t.Cleanup(srv.Close)
	b := Open(t)
	p := b.Page(srv.URL)
	p.Type("input", "töpfe & 'pans'")
	p.Click("button")
	if title := p.Text("document.title"); title != "töpfe & 'pans'" {
		t.Errorf("title %q", title)
	}
	var sum int
	p.Eval("Promise.resolve(40 + 2)", &sum)
	if sum != 42 {
		t.Errorf("the promise was %d", sum)
	}
	if err := p.eval("nothing.here", nil); err == nil {
		t.Error("an exception was no error")
	}
	img, err := png.Decode(bytes.NewReader(p.Screenshot(320, 200)))
	if err != nil || img.Bounds().Dx() != 320 || img.Bounds().Dy() != 200 {
		t.Errorf("screenshot %v, %v", img, err)
	}
}
