package images

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"hutch"
)

// TestTemplate: a template of an image has the image's files and environment, its program runs and is ready, and the
// interpreter that waits has imported what it should. Later sandboxes come out of the pool.
func TestTemplate(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		b.End(t)
		b.flags = append(b.flags, "--pool", "4") // 3 are always for the image host, so one is left for a copy
		b.start(t)
		snap, err := b.CreateTemplate(t.Context(), hutch.TemplateRequest{
			Name: "web", Image: python, Limits: hutch.Limits{Memory: 512, Disk: 128},
			Template: hutch.Template{
				Start: "echo $COLOUR >colour; exec python3 -m http.server 8000", Ready: &hutch.WaitRequest{Port: 8000, Path: "/colour"},
				Warm: []string{"python=colorsys"},
			},
		})
		if err != nil || snap.Template == nil {
			t.Fatalf("%+v, %v", snap, err)
		}
		if err := b.DeleteImage(t.Context(), python); !errors.Is(err, hutch.Conflict) {
			t.Errorf("the image of a template is deleted: %v", err)
		}
		for i := range 3 {
			sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: "web"})
			if err != nil || sb.Template != "web" || sb.Image != snap.Image {
				t.Fatalf("%+v, %v", sb, err)
			}
			const ask = `python3 -c "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/colour').read().decode().strip())"; grep -o bookworm /etc/os-release | head -1; echo $SANDBOX_ID`
			if got, want := b.run(t, sb.ID, ask), "red\nbookworm\n"+sb.ID; got != want {
				t.Errorf("sandbox %d prints %q, not %q", i, got, want)
			}
			run, err := b.RunCode(t.Context(), sb.ID, hutch.RunRequest{Language: "python", Code: "import sys; print('colorsys' in sys.modules)"}, nil)
			if err != nil || ((snap.Memory || i == 2) && string(run.Stdout) != "True\n") {
				t.Errorf("the interpreter says %q, %v", run.Stdout, err)
			}
			if err := b.waits(t, snap.ID, i); err != nil {
				t.Error(err)
			}
		}
	})
}

// waits waits until a copy of a template is ready in the pool, if the template was used before.
func (b *bed) waits(t *testing.T, snapshot string, creates int) error {
	t.Helper()
	if creates < 1 {
		return nil
	}
	var state hutch.PoolState
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if state, err = b.Pool(t.Context()); err != nil {
			return err
		}
		for _, k := range state.Kinds {
			if k.Snapshot == snapshot && k.Ready > 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("no copy of the template waits: %+v", state)
}

// TestTemplateOfEntrypoint: a template can run the program that its image names.
func TestTemplateOfEntrypoint(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		if _, err := b.CreateTemplate(t.Context(), hutch.TemplateRequest{
			Name: "own", Image: "hello:1", Entrypoint: true, Limits: hutch.Limits{Memory: 512, Disk: 128},
			Template: hutch.Template{Ready: &hutch.WaitRequest{Text: "hello 7000 7001 /data 1"}},
		}); err != nil {
			t.Fatal(err)
		}
		sb, err := b.Create(t.Context(), hutch.CreateRequest{Template: "own"})
		if err != nil {
			t.Fatal(err)
		}
		if all, err := b.Processes(t.Context(), sb.ID); err != nil || len(all) != 1 || all[0].Command != "'/program'" {
			t.Errorf("its processes are %+v, %v", all, err)
		}
	})
}
