package tenants

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestLibreChatRoutes: eve calls each route of LibreChat's code API with the ids of ada's session and file, and with ids
// that never existed. She cannot distinguish the answers, and ada's file is as before.
func TestLibreChatRoutes(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada, eve := h.adaAndEve(t)
	const boundary = "multipart/form-data; boundary=B"
	upload := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"secret.txt\"\r\n\r\nof ada\r\n--B--\r\n"
	a := ada.ask(t, "POST", "/librechat/v1/upload", upload, "Content-Type", boundary)
	session := between(a.body, `"session_id":"`, `"`)
	file := between(a.body, `"fileId":"`, `"`)
	if len(session) != 21 || len(file) != 21 {
		t.Fatalf("ada's upload: %d %s", a.status, a.body)
	}
	nobody := strings.Repeat("A", 21)
	for _, route := range h.librechat.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if a := h.stranger().ask(t, method, path, "{}"); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, a.status, a.body)
		}
		if strings.HasSuffix(path, "upload") || strings.HasSuffix(path, "batch") {
			continue // they name no session
		}
		ask := func(session, file string) string {
			body := fmt.Sprintf(`{"lang":"bash","code":"cat secret.txt","files":[{"id":%q,"session_id":%q,"name":"secret.txt"}]}`, file, session)
			a := eve.ask(t, method, strings.NewReplacer("{session}", session, "{file}", file).Replace(path), body)
			if strings.Contains(a.body, "of ada") {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
			return fmt.Sprint(a.status, " ", strings.NewReplacer(session, "SESSION", file, "FILE").Replace(a.body))
		}
		if hers, none := ask(session, file), ask(nobody, nobody); hers != none {
			t.Errorf("%s of ada's: %s\nand of nobody's: %s", route, hers, none)
		}
	}
	if a := ada.ask(t, "GET", "/librechat/v1/download/"+session+"/"+file, ""); a.body != "of ada" {
		t.Errorf("ada's file is now %d %s", a.status, a.body)
	}
}

// between returns the text after a mark and before another.
func between(text, after, before string) string {
	_, text, _ = strings.Cut(text, after)
	text, _, _ = strings.Cut(text, before)
	return text
}
