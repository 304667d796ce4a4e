package tenants

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTemplates: eve learns nothing about ada's template and its sandbox, and cannot start a sandbox from it by any
// field. She can make no template that reaches more than her token may, and can share none.
func TestTemplates(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"adas-box"}`)
	ada.want(t, "POST", "/v1/templates", `{"name":"adas-tmpl:v1","from":"adas-box","filesOnly":true,"maxSandboxes":1}`)
	for route, body := range map[string]string{
		"POST /v1/sandboxes":          `{"template":"NAME"}`,
		"POST /v1/sandboxes ":         `{"snapshot":"NAME"}`,
		"POST /v1/templates":          `{"name":"mine","snapshot":"NAME"}`,
		"DELETE /v1/snapshots/":       "NAME",
		"POST /v1/snapshots/NAME/tag": `{"name":"mine"}`,
	} {
		method, path, _ := strings.Cut(strings.TrimSpace(route), " ")
		at := func(name string) string {
			if method == "DELETE" {
				path = "/v1/snapshots/" + name
			}
			a := eve.ask(t, method, strings.ReplaceAll(path, "NAME", name), strings.ReplaceAll(body, "NAME", name))
			if method != "DELETE" && a.status < 400 {
				t.Errorf("%s with %s: %d %s", route, name, a.status, a.body)
			}
			return fmt.Sprint(a.status, strings.ReplaceAll(a.body, name, "NAME"))
		}
		if hers, none := at("adas-tmpl:v1"), at("nobodys-x:v1"); hers != none {
			t.Errorf("%s %s of ada's: %s\nand of nobody's: %s", route, body, hers, none)
		}
	}
	if a := eve.ask(t, "POST", "/v1/sandboxes", `{"image":"adas-tmpl:v1"}`); strings.Contains(a.body, `"template"`) {
		t.Errorf("eve begins as ada's template: %s", a.body)
	}
	if a := eve.ask(t, "POST", "/v1/templates", `{"name":"mine","from":"adas-box"}`); a.status != http.StatusNotFound {
		t.Errorf("a template of ada's sandbox: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/v1/templates", `{"name":"mine","network":{"mode":"open"}}`); a.status != http.StatusForbidden {
		t.Errorf("a template that reaches everything: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "POST", "/v1/templates", `{"name":"mine","shared":true}`); a.status != http.StatusForbidden {
		t.Errorf("a template for all: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "GET", "/v1/snapshots", ""); strings.Contains(a.body, "adas-tmpl") {
		t.Errorf("eve lists %s", a.body)
	}
	eve.want(t, "POST", "/v1/sandboxes", `{"sandboxId":"eves-box"}`)
	eve.want(t, "POST", "/v1/templates", `{"name":"mine","from":"eves-box","filesOnly":true}`)
	eve.want(t, "POST", "/v1/snapshots/mine/tag", `{"name":"adas-tmpl:v1","replace":true}`) // this name is eve's own
	eve.want(t, "DELETE", "/v1/snapshots/adas-tmpl:v1", "")
	ada.want(t, "POST", "/v1/sandboxes", `{"template":"adas-tmpl:v1"}`)
	if a := ada.ask(t, "POST", "/v1/sandboxes", `{"template":"adas-tmpl:v1"}`); a.status != http.StatusTooManyRequests {
		t.Errorf("one more than ada's template allows: %d %s", a.status, a.body)
	}
}

// TestSnapshotDiffs: eve cannot compare ada's snapshots, by any name, and does not learn whether they exist.
func TestSnapshotDiffs(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	for who, c := range map[string]*tenant{"ada": ada, "eve": eve} {
		c.want(t, "POST", "/v1/sandboxes", fmt.Sprintf(`{"sandboxId":"%ss-box"}`, who))
		c.want(t, "PUT", "/v1/sandboxes/"+who+"s-box/files/content?path=secret", "of "+who)
		c.want(t, "POST", "/v1/sandboxes/"+who+"s-box/snapshots", fmt.Sprintf(`{"name":"%ss-snap","filesOnly":true}`, who))
	}
	for _, path := range []string{"/v1/snapshots/NAME-snap/diff", "/v1/snapshots/NAME-snap/diff?to=eves-snap", "/v1/snapshots/eves-snap/diff?to=NAME-snap", "/v1/snapshots/eves-snap/diff?sandboxId=NAME-box&text=true&wake=true"} {
		at := func(name string) string {
			a := eve.ask(t, "GET", strings.ReplaceAll(path, "NAME", name), "")
			if a.status != http.StatusNotFound {
				t.Errorf("%s with %s: %d %s", path, name, a.status, a.body)
			}
			return fmt.Sprint(a.status, strings.ReplaceAll(a.body, name, "NAME"))
		}
		if hers, none := at("adas"), at("none"); hers != none {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", path, hers, none)
		}
	}
	ada.want(t, "GET", "/v1/snapshots/adas-snap/diff?text=true", "")
	eve.want(t, "GET", "/v1/snapshots/eves-snap/diff?to=eves-snap", "")
}
