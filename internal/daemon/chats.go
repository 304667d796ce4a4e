package daemon

import (
	"context"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat/dify"
	"hutch/internal/compat/jupyter"
	"hutch/internal/compat/librechat"
	"hutch/internal/compat/openterminal"
	"hutch/internal/compat/ragflow"
)

// Chats are the APIs with which chat front ends run code.
type Chats struct {
	// Image is the image or template of the sandboxes of chats; default the server's.
	Image string
	// RAGFlow is another address and port, on loopback or a private network, where RAGFlow's executor answers without a
	// token. Its requests use RAGFlowToken. "" for no such address.
	RAGFlow, RAGFlowToken string
	// Keep is how long data of a user or a conversation is kept without use; default 7 days.
	Keep time.Duration
	// LibreChat says which tokens of LibreChat's users are accepted; without a key none are. Their requests use
	// LibreChatToken.
	LibreChat      librechat.VerifierOptions
	LibreChatToken string
}

// chats returns the APIs of Chats that this server answers.
func (d *Daemon) chats() []foreignAPI {
	df := dify.NewHandler(d.policy, dify.Options{Image: d.cfg.Chats.Image, Timeout: d.cfg.Sandboxes.ExecTimeout, Log: d.log})
	rf := ragflow.NewHandler(d.policy, ragflow.Options{Image: d.cfg.Chats.Image, Timeout: d.cfg.Sandboxes.ExecTimeout, Log: d.log})
	ju := jupyter.NewHandler(d.policy, jupyter.Options{Image: d.cfg.Chats.Image, MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Origins: d.cfg.Origins, Log: d.log})
	lc := librechat.NewHandler(d.policy, librechat.Options{Image: d.cfg.Chats.Image, Timeout: d.cfg.Sandboxes.ExecTimeout, Keep: d.cfg.Chats.Keep, Log: d.log})
	ot := openterminal.NewHandler(d.policy, openterminal.Options{Image: d.cfg.Chats.Image, Keep: d.cfg.Chats.Keep, Previews: d.previewOptions(), Log: d.log})
	return []foreignAPI{
		{paths: []string{openterminal.Prefix + "/"}, handler: ot, refuse: openterminal.Refuse, uploads: openterminal.Uploads, close: ot.Close},
		{paths: []string{jupyter.Prefix + "/"}, handler: ju, refuse: jupyter.Refuse, close: ju.Close},
		{paths: []string{dify.Prefix + "/"}, handler: df, refuse: dify.Refuse, close: df.Close},
		{paths: []string{ragflow.Prefix + "/"}, handler: rf, refuse: ragflow.Refuse, close: rf.Close},
		{paths: []string{librechat.Prefix + "/"}, handler: lc, refuse: librechat.Refuse, uploads: librechat.Uploads, close: lc.Close},
	}
}

// openLibreChat reads the key of the tokens of LibreChat's users, if one was given.
func (d *Daemon) openLibreChat(context.Context) (err error) {
	c := d.cfg.Chats
	if (c.LibreChat.Key == "") != (c.LibreChatToken == "") {
		return hutch.Errorf(hutch.Invalid, "tokens of LibreChat's users need two files: --librechat-key-file with the key that they are verified with, and --librechat-token-file with the token that they stand for")
	}
	if c.LibreChat.Key != "" {
		d.libreChat, err = librechat.NewVerifier(c.LibreChat)
	}
	return err
}

// libreChatUsers passes requests of LibreChat's users to guarded, if the server accepts their tokens.
func (d *Daemon) libreChatUsers(guarded http.Handler) http.Handler {
	if d.libreChat == nil {
		return guarded
	}
	return librechat.Front(guarded, d.libreChat, d.cfg.Chats.LibreChatToken)
}
