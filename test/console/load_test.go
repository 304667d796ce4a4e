// Package console uses the console as people do: a real `hutch serve`, and Chromium driven by Playwright, whose tests are in specs/. A
// violation of the Content-Security-Policy, an error of a script and a request to another host fail a test.
package console

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// maxFirstLoad is the most that a browser loads before it shows a page, in gzipped bytes. Terminal, editor and charts come later.
const maxFirstLoad = 300 << 10

const dist = "../../internal/console/dist"

// The first load of a browser is small: the page, and the files that it names.
func TestFirstLoad(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(dist, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`).FindAllSubmatch(index, -1) {
		content, err := os.ReadFile(filepath.Join(dist, string(name[1])))
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		w.Write(content)
		w.Close()
		total += packed.Len()
	}
	if total == 0 || total > maxFirstLoad {
		t.Errorf("the first load has %d bytes, the most is %d", total, maxFirstLoad)
	}
	t.Logf("the first load has %d bytes", total)
}

// The page names no other host and has no inline script.
func TestPageIsAlone(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(dist, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`https?://|<script>|<script [^>]*>[^<]| style=| on\w+=`).Find(index); found != nil {
		t.Errorf("index.html has %s", found)
	}
}
