package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"hutch/api"
	"hutch/internal/fakeservice"
	"hutch/internal/rest"
)

// TestUnknownParameters: every call that reads JSON refuses unknown parameters. If an unknown filter were ignored, all
// items would look as if they matched.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths map[string]struct {
			Get *struct {
				Parameters []any
				Responses  map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(api.JSON(), &document); err != nil {
		t.Fatal(err)
	}
	b := serve(t, &fakeservice.Service{}, rest.Options{})
	for path, p := range document.Paths {
		if p.Get == nil || !strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v1/openapi") || path == "/v1/version" || strings.HasSuffix(path, "/links") ||
			!strings.Contains(string(p.Get.Responses["200"]), "application/json") {
			continue
		}
		resp, err := http.Get(b.URL + strings.NewReplacer("{id}", "s", "{", "", "}", "").Replace(path) + "?nosuch=1")
		if err != nil {
			t.Fatal(err)
		}
		var problem struct{ Detail string }
		json.NewDecoder(resp.Body).Decode(&problem)
		resp.Body.Close()
		lacks := resp.StatusCode == http.StatusUnprocessableEntity // this test server lacks that part
		if !lacks && (resp.StatusCode != http.StatusBadRequest || !strings.Contains(problem.Detail, `"nosuch"`)) {
			t.Errorf("GET %s: %d %q, want a refusal of the parameter nosuch", path, resp.StatusCode, problem.Detail)
		}
	}
}
