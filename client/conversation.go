package client

import (
	"context"
	"net/url"
	"time"

	"hutch"
)

// Conversation is the record of a chat that runs code.
type Conversation struct {
	Name string `json:"conversation"`
	// Owner tells the conversations of different owners apart in a list of all.
	Owner    string    `json:"owner,omitempty"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modifiedAt"`
}

// Conversations returns the conversations of the token's owner, by name. With all it returns those of every owner, and
// needs the scope admin.
func (c *Client) Conversations(ctx context.Context, all bool) ([]Conversation, error) {
	type page struct {
		Conversations []Conversation `json:"conversations"`
		Next          string         `json:"next"`
	}
	list := []Conversation{}
	for q := (url.Values{}); ; {
		if all {
			q.Set("all", "true")
		}
		p, err := call[page](ctx, c, endpoint{method: "GET", path: "/conversations"}.with(q), nil)
		if list = append(list, p.Conversations...); err != nil || p.Next == "" || p.Next == q.Get("after") {
			return list, err
		}
		q.Set("after", p.Next)
	}
}

// DeleteConversation deletes a conversation of the token's owner, with its files, its sandbox and its links. It is
// idempotent.
func (c *Client) DeleteConversation(ctx context.Context, name string) error {
	if name == "" || name[0] == '.' {
		return hutch.Errorf(hutch.Invalid, "%q is not the name of a conversation: it begins with a letter or digit", name)
	}
	_, err := call[struct{}](ctx, c, endpoint{method: "DELETE", path: "/conversations/" + url.PathEscape(name)}, nil)
	return err
}
