package browser

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"
)

// Page is a tab of a browser. If one of its methods fails, the test ends.
type Page struct {
	t       testing.TB
	b       *Browser
	session string
}

// Page opens an address in a new tab and waits until it is loaded. Tabs of one browser share cookies and storage, as
// usual.
func (b *Browser) Page(url string) *Page {
	b.t.Helper()
	var target struct {
		ID string `json:"targetId"`
	}
	p := &Page{t: b.t, b: b}
	p.must(b.call("", "Target.createTarget", params{"url": "about:blank"}, &target))
	var attached struct {
		ID string `json:"sessionId"`
	}
	p.must(b.call("", "Target.attachToTarget", params{"targetId": target.ID, "flatten": true}, &attached))
	p.session = attached.ID
	p.Navigate(url)
	return p
}

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("browser: %v", err)
	}
}

// Navigate goes to an address and waits until it is loaded.
func (p *Page) Navigate(url string) {
	p.t.Helper()
	var res struct {
		Error string `json:"errorText"`
	}
	p.must(p.b.call(p.session, "Page.navigate", params{"url": url}, &res))
	if res.Error != "" {
		p.t.Fatalf("browser: %s: %s", url, res.Error)
	}
	p.Wait("document.readyState === 'complete'")
}

// Eval runs JavaScript in the page, and decodes its value into result. If the value is a promise, it waits for it. The
// value must be valid JSON.
func (p *Page) Eval(js string, result any) {
	p.t.Helper()
	p.must(p.eval(js, result))
}

func (p *Page) eval(js string, result any) error {
	var res struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	ask := params{"expression": js, "awaitPromise": true, "returnByValue": true, "userGesture": true}
	if err := p.b.call(p.session, "Runtime.evaluate", ask, &res); err != nil {
		return err
	}
	if e := res.Exception; e != nil {
		return fmt.Errorf("%s: %s %s", js, e.Text, e.Exception.Description)
	}
	if result == nil || res.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(res.Result.Value, result)
}

// Text returns the value of an expression as a string.
func (p *Page) Text(js string) (s string) {
	p.t.Helper()
	p.Eval("String("+js+")", &s)
	return s
}

// Wait waits until an expression is true. While the page navigates to another one, errors in the expression are
// ignored.
func (p *Page) Wait(js string) {
	p.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		var is bool
		if err = p.eval("!!("+js+")", &is); err == nil && is {
			return
		}
	}
	p.t.Fatalf("browser: waited without success for %s (%v); the page says: %s", js, err, p.Text("document.body.innerText"))
}

// Type clicks into the element with a CSS selector and replaces its text, as a person would.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Eval("{const e = document.querySelector("+strconv.Quote(selector)+"); e.focus(); e.select && e.select()}", nil)
	p.must(p.b.call(p.session, "Input.insertText", params{"text": text}, &struct{}{}))
	// Leave the field, as a person would: the field reports its change only then.
	p.Eval("document.activeElement.blur()", nil)
}

// Choose chooses an option of the element with a CSS selector.
func (p *Page) Choose(selector, value string) {
	p.t.Helper()
	p.Eval("{const e = document.querySelector("+strconv.Quote(selector)+"); e.value = "+strconv.Quote(value)+"; if (e.value !== "+strconv.Quote(value)+") throw new Error('no such option'); e.dispatchEvent(new Event('change'))}", nil)
}

// Click clicks the element with a CSS selector. It uses the mouse, so no other element may cover the element.
func (p *Page) Click(selector string) {
	p.t.Helper()
	var at struct{ X, Y float64 }
	p.Eval("(e => {e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2}})(document.querySelector("+strconv.Quote(selector)+"))", &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.must(p.b.call(p.session, "Input.dispatchMouseEvent", params{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, &struct{}{}))
	}
}

// Screenshot returns a picture of the page, as a PNG of width by height pixels.
func (p *Page) Screenshot(width, height int) []byte {
	p.t.Helper()
	p.must(p.b.call(p.session, "Emulation.setDeviceMetricsOverride", params{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, &struct{}{}))
	var shot struct {
		Data []byte `json:"data"`
	}
	p.must(p.b.call(p.session, "Page.captureScreenshot", params{"format": "png"}, &shot))
	return shot.Data
}

// SaveTo lets pages save downloads in a folder.
func (b *Browser) SaveTo(dir string) {
	b.t.Helper()
	if err := b.call("", "Browser.setDownloadBehavior", params{"behavior": "allow", "downloadPath": dir}, &struct{}{}); err != nil {
		b.t.Fatalf("browser: %v", err)
	}
}
