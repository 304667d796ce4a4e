package preview

import (
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hutch/internal/hutchtest"
)

// The example shows what it says: its picture has the bars of the chart.
func TestExample(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		hutchtest.Skip(t, "chromium is missing: apt-get install chromium")
	}
	b := open(t, "native", nil)
	picture := filepath.Join(hutchtest.Dir(t), "picture.png")
	cmd := exec.CommandContext(bounded(t), "go", "run", "./examples/preview", picture)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "HUTCH_URL="+b.daemon.URL, "HUTCH_TOKEN="+ourToken)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	blue := 0
	for x := range img.Bounds().Dx() {
		for y := range img.Bounds().Dy() {
			if r, g, b, _ := img.At(x, y).RGBA(); b>>8 > 150 && r>>8 < 135 && g>>8 > 110 {
				blue++
			}
		}
	}
	if blue < 1000 {
		t.Errorf("the picture has %d points of the chart's blue", blue)
	}
}
