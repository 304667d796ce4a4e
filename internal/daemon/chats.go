package daemon

import (
	"hutch/internal/compat/dify"
	"hutch/internal/compat/jupyter"
	"hutch/internal/compat/ragflow"
)

// Chats are the APIs with which chat front ends run code.
type Chats struct {
	// Image is the image or template of their sandboxes; default the server's.
	Image string
	// RAGFlow is another address and port, on loopback or a private network, where RAGFlow's executor answers without a
	// token. What is asked there is done for RAGFlowToken. "" for no such address.
	RAGFlow, RAGFlowToken string
}

// chats are these APIs.
func (d *Daemon) chats() []foreign {
	df := dify.NewHandler(d.policy, dify.Options{Image: d.cfg.Chats.Image, Timeout: d.cfg.Sandboxes.ExecTimeout, Log: d.log})
	rf := ragflow.NewHandler(d.policy, ragflow.Options{Image: d.cfg.Chats.Image, Timeout: d.cfg.Sandboxes.ExecTimeout, Log: d.log})
	ju := jupyter.NewHandler(d.policy, jupyter.Options{Image: d.cfg.Chats.Image, MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Origins: d.cfg.Origins, Log: d.log})
	return []foreign{
		{paths: []string{jupyter.Prefix + "/"}, handler: ju, refuse: jupyter.Refuse, close: ju.Close},
		{paths: []string{dify.Prefix + "/"}, handler: df, refuse: dify.Refuse, close: df.Close},
		{paths: []string{ragflow.Prefix + "/"}, handler: rf, refuse: ragflow.Refuse, close: rf.Close},
	}
}
