package hutch

import "time"

// TerminalLink is a link by which anyone can watch one terminal, and do nothing else.
type TerminalLink struct {
	ID        string    `json:"linkId"`
	SandboxID string    `json:"sandboxId"`
	ProcessID string    `json:"processId"`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// SharedTerminal is a link that was just made.
type SharedTerminal struct {
	TerminalLink
	// Path is to be opened at the server. After # it has the secret of the link, because browsers do not send that part
	// to a server.
	Path string `json:"path"`
}
