package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// chatFlags configure the APIs with which chat front ends run code.
func (fl *serveFlags) chatFlags(f *pflag.FlagSet) {
	f.StringVar(&fl.Chats.Image, "chat-image", "", "image or template of the sandboxes that chat front ends run code in (default: this machine's programs)")
	f.StringVar(&fl.Chats.RAGFlow, "ragflow-listen", "", "another address and port, on loopback or a private network, where RAGFlow runs code without a token, e.g. 127.0.0.1:9385; it needs --ragflow-token-file")
	f.StringVar(&fl.ragflowToken, "ragflow-token-file", "", "file with the token that runs at --ragflow-listen are made with")
}

// completeChats reads the files that these flags name.
func (fl *serveFlags) completeChats() (err error) {
	fl.Chats.RAGFlowToken, err = secretIn("--ragflow-token-file", fl.ragflowToken)
	return err
}

// maxSecret bounds a file with a secret, in bytes.
const maxSecret = 64 << 10

// secretIn reads a secret from the file that a flag names; empty for no file.
func secretIn(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return "", usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	secret := strings.TrimSpace(string(b))
	if secret == "" || len(b) == maxSecret {
		return "", usageError{fmt.Errorf("%s: %s holds no secret: write one line into it", flag, file)}
	}
	return secret, nil
}
