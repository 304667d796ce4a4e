package tenants

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// bridgeBodies are valid request bodies, by the last part of a route of the bridge.
var bridgeBodies = map[string]string{
	"exec": `{"argv":["cat","secret"]}`, "session": `{"id":"of-eve"}`, "mount": `{"binding":"adas-data","mountPath":"/workspace/d","options":{}}`,
	"unmount": `{"mountPath":"/workspace/mounted"}`, "hydrate": "not an archive",
}

// times matches the parts of an answer that differ when a call is repeated.
var times = regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[^"]*"|-[a-z0-9]{16}\b`)

// piece is an event with a piece of output; there can be any number of such events.
var piece = regexp.MustCompile(`event: std(?:out|err)\ndata: ([A-Za-z0-9+/=]*)\n\n`)

// whole puts the pieces of output in a stream of events together.
func whole(body string) string {
	var out strings.Builder
	for _, p := range piece.FindAllStringSubmatch(body, -1) {
		text, _ := base64.StdEncoding.DecodeString(p[1])
		out.Write(text)
	}
	return out.String() + piece.ReplaceAllString(body, "")
}

// TestBridgeRoutes: eve calls each route of the bridge with the id of ada's sandbox, and with an id that never existed.
// She cannot distinguish the answers: either id gives her a sandbox of her own, and ada's is as it was.
func TestBridgeRoutes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	ada.want(t, "POST", "/v1/volumes", `{"name":"adas-data"}`)
	ada.want(t, "PUT", "/v1/sandbox/adasbox/file/workspace/secret", "of ada")
	ada.want(t, "POST", "/v1/sandbox/adasbox/mount", `{"binding":"adas-data","mountPath":"/workspace/mounted","options":{}}`)
	ada.want(t, "POST", "/v1/sandbox/adasbox/tunnel/8080", "")

	tried := 0
	for _, route := range h.bridge.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !strings.Contains(path, "{id}") {
			continue
		}
		tried++
		body := bridgeBodies[path[strings.LastIndexByte(path, '/')+1:]]
		ask := func(id string) string {
			a := eve.ask(t, method, strings.NewReplacer("{id}", id, "{path...}", "workspace/secret", "{session}", "of-eve", "{port}", "8080").Replace(path), body)
			if strings.Contains(a.body, "of ada") {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
			if strings.HasSuffix(path, "/persist") {
				return fmt.Sprint(a.status) // the names of the fake sandbox's own packed files are random
			}
			return times.ReplaceAllString(fmt.Sprint(a.status, " ", strings.ReplaceAll(whole(a.body), id, "ID")), "X")
		}
		if hers, none := ask("adasbox"), ask("nobodyx"); hers != none { // both ids have the same length
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, none)
		}
	}
	if tried < 13 {
		t.Errorf("only %d routes were tried", tried)
	}
	if a := ada.ask(t, "GET", "/v1/sandbox/adasbox/file/workspace/secret", ""); a.body != "of ada" {
		t.Errorf("ada's file is now %d %q", a.status, a.body)
	}
	if a := ada.ask(t, "GET", "/v1/sandboxes/adasbox/ports", ""); !strings.Contains(a.body, "8080") {
		t.Errorf("ada's tunnel is gone: %s", a.body)
	}
	if a := ada.ask(t, "DELETE", "/v1/sandbox/adasbox", ""); a.status != http.StatusNoContent {
		t.Errorf("ada's sandbox is now %d %s", a.status, a.body)
	}
}

// TestBridgeMountsOfOthers: eve shares a sandbox with ada and mounts her own volume in it. ada has a volume of the same
// name. The bridge does not use shared sandboxes, so it copies nothing of eve's into ada's volume.
func TestBridgeMountsOfOthers(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	for _, who := range []*tenant{ada, eve} {
		who.want(t, "POST", "/v1/volumes", `{"name":"data"}`)
	}
	eve.want(t, "POST", "/v1/sandbox/shared/mount", `{"binding":"data","mountPath":"/workspace/mounted","options":{}}`)
	eve.want(t, "PUT", "/v1/sandbox/shared/file/workspace/mounted/file", "of eve")
	eve.want(t, "PUT", "/v1/sandboxes/shared/grants/ada", `{"access":"write"}`)
	if a := ada.ask(t, "POST", "/v1/sandbox/shared/unmount", `{"mountPath":"/workspace/mounted"}`); a.status < 400 {
		t.Errorf("unmount: %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "DELETE", "/v1/sandbox/shared", ""); a.status != http.StatusNoContent { // as if it never existed
		t.Errorf("destroy: %d %s", a.status, a.body)
	}
	if a := ada.ask(t, "GET", "/v1/volumes/data/archive", ""); strings.Contains(a.body, "of eve") {
		t.Errorf("ada's volume has eve's file: %d", a.status)
	}
	if a := eve.ask(t, "DELETE", "/v1/sandbox/shared", ""); a.status != http.StatusNoContent {
		t.Errorf("eve's own: %d %s", a.status, a.body)
	}
	if a := eve.ask(t, "GET", "/v1/volumes/data/archive", ""); !strings.Contains(a.body, "of eve") {
		t.Errorf("eve's volume lacks her file: %d", a.status)
	}
}
