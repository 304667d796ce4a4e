package images

import (
	"strings"
	"testing"
	"time"

	"hutch"
)

// TestProgramOfAnImage: what the configuration of an image says about its program applies to the program in a sandbox.
// The image has no shell.
func TestProgramOfAnImage(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: "site:1", Limits: hutch.Limits{Memory: 512, Disk: 128}, OnIdle: hutch.IdleStop, SleepAfter: 3600})
		if err != nil {
			t.Fatal(err)
		}
		img, err := b.Image(t.Context(), sb.Image)
		if ports := img.Config.TCPPorts(); err != nil || len(ports) != 1 || ports[0] != 8080 {
			t.Errorf("it names the ports %v, %v", ports, err)
		}
		if h := img.Config.Healthcheck; h == nil || h.Command != "'/program' 'check'" {
			t.Errorf("it is checked by %+v", h)
		}
		p, err := b.StartProcess(t.Context(), sb.ID, hutch.ProcessRequest{Entrypoint: true})
		if err != nil {
			t.Fatal(err)
		}
		if p.Command != "'/program'" || p.StopSignal != 3 || p.Health == nil {
			t.Errorf("it runs as %+v", p)
		}
		res, err := b.Wait(t.Context(), sb.ID, p.ID, hutch.WaitRequest{Healthy: true, Timeout: 120})
		if h := res.Process.Health; err != nil || !res.Met || h == nil || h.Output != "it says 200\n" {
			t.Fatalf("waiting for its health: %+v, %+v, %v", res, h, err)
		}

		// Its sandbox is stopped, because it is idle.
		idle := hutch.Seconds(0.1)
		if _, err := b.Update(t.Context(), sb.ID, hutch.UpdateRequest{SleepAfter: &idle}); err != nil {
			t.Fatal(err)
		}
		b.until(t, sb.ID, hutch.Stopped)
		var word strings.Builder
		if _, err := b.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: "/data/word"}, &word); err != nil || word.String() != "quit" {
			t.Errorf("at its end it left %q, %v", word.String(), err)
		}

		// A request overrides the configuration of the image.
		p, err = b.StartProcess(t.Context(), sb.ID, hutch.ProcessRequest{Entrypoint: true, Care: hutch.Care{StopSignal: 9}})
		if err != nil || p.StopSignal != 9 || p.Health == nil {
			t.Errorf("with another stop signal: %+v, %v", p, err)
		}
	})
}

// TestTemplateThatIsHealthy: a template of an image can wait until its program is healthy.
func TestTemplateThatIsHealthy(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		snap, err := b.CreateTemplate(t.Context(), hutch.TemplateRequest{
			Name: "site", Image: "site:1", Entrypoint: true, Limits: hutch.Limits{Memory: 512, Disk: 128},
			Template: hutch.Template{Ready: &hutch.WaitRequest{Healthy: true, Timeout: 120}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if c := snap.Template.Care; c.StopSignal != 3 || c.Health == nil {
			t.Errorf("the template says %+v", c)
		}
		sb, err := b.Create(t.Context(), hutch.CreateRequest{Template: "site"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := b.Processes(t.Context(), sb.ID)
		if err != nil || len(all) != 1 || all[0].StopSignal != 3 || all[0].Health == nil || all[0].Health.Status != hutch.HealthGood {
			t.Errorf("its processes are %+v, %v", all, err)
		}
	})
}

// until waits for the status of a sandbox, without using the sandbox.
func (b *bed) until(t *testing.T, id string, want hutch.Status) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		sb, err := b.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if sb.Status == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it is not %s: %+v", want, sb)
		}
	}
}
