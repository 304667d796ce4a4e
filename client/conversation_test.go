package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"hutch/client"
)

func TestConversationsComeInPages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"all=true":           `{"conversations":[{"conversation":"a","owner":"x","bytes":1,"modifiedAt":"2026-01-31T15:04:05Z"}],"next":"a~x"}`,
		"after=a~x&all=true": `{"conversations":[{"conversation":"b"}]}`,
		"":                   `{"conversations":[]}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(pages[r.URL.RawQuery]))
	}))
	defer s.Close()
	c := client.New(s.URL, "token")
	defer c.Close()
	list, err := c.Conversations(t.Context(), true)
	if err != nil || len(list) != 2 || list[0].Owner != "x" || list[0].Modified.IsZero() || list[1].Name != "b" {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := c.Conversations(t.Context(), false); err != nil || list == nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.DeleteConversation(t.Context(), "../v1/sandboxes/x"); err == nil {
		t.Error("a path is taken for a name")
	}
}
