package conversation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/browser"
)

// TestPage acts as a person with a browser: it pastes the token, picks a language and an example, runs it, reads the
// output and downloads the written file.
func TestPage(t *testing.T) {
	t.Parallel()
	b := browser.Open(t)
	d := deploy(t)
	d.start(t)
	saved := hutchtest.Dir(t)
	b.SaveTo(saved)
	p := b.Page(d.url)

	p.Type("#token", "not-"+token)
	p.Wait("document.querySelector('#status').textContent.includes('not valid')")
	p.Type("#token", token)
	p.Wait("[...document.querySelector('#language').options].some(o => o.value === 'perl')") // perl comes from the server
	p.Type("#conversation", "with-a-browser")
	p.Choose("#language", "python")
	p.Choose("#example", "Write a file")
	p.Click("#run")
	p.Wait("document.querySelector('#status').textContent.startsWith('Exit code 0')")
	if out := p.Text("document.querySelector('#output').textContent"); out != "squares.csv is below, and there for the next run\n" {
		t.Errorf("output %q", out)
	}
	p.Click("#files a")
	if text := downloaded(t, filepath.Join(saved, "squares.csv")); !strings.HasPrefix(text, "n,n squared\r\n0,0\r\n1,1\r\n") {
		t.Errorf("downloaded %q", text)
	}

	// The output of code is shown as text, and while the code runs.
	p.Choose("#language", "bash")
	p.Type("#code", `echo "<img src=x onerror='document.title=1'>"; exec sleep 600`)
	p.Click("#run")
	p.Wait("document.querySelector('#output').textContent.includes('<img')")
	p.Click("#stop")
	p.Wait("document.querySelector('#status').textContent === 'Stopped.'")
	if n := p.Text("document.querySelectorAll('#output *').length"); n != "0" {
		t.Error("output became part of the page")
	}

	// After a reload, the page remembers the conversation, and the conversation has the file.
	p.Navigate(d.url)
	p.Choose("#language", "bash")
	p.Type("#code", "ls; exit 3")
	p.Click("#run")
	p.Wait("document.querySelector('#status').textContent.startsWith('Exit code 3')")
	if out := p.Text("document.querySelector('#output').textContent"); out != "squares.csv\n" {
		t.Errorf("files %q", out)
	}
}

// downloaded waits until a file is there, and returns its text.
func downloaded(t *testing.T, path string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			return string(b)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
		if time.Now().After(end) {
			t.Fatalf("nothing was downloaded: %v", err)
		}
	}
}
