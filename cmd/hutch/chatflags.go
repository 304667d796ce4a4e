package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// librechatFiles are files with secrets of LibreChat.
type librechatFiles struct{ key, token string }

// chatFlags configure the APIs with which chat front ends run code.
func (fl *serveFlags) chatFlags(f *pflag.FlagSet) {
	f.StringVar(&fl.Chats.Image, "chat-image", "", "image or template of the sandboxes that chat front ends run code in (default: this machine's programs)")
	durationVar(f, &fl.Chats.Keep, "chat-keep", "", 7*24*time.Hour, "how long the files and sandboxes of a user or a conversation of a chat front end stay without use")
	f.StringVar(&fl.Chats.LibreChat.Issuer, "librechat-issuer", "librechat", "issuer of the tokens (JWT) that LibreChat signs for its users")
	f.StringVar(&fl.Chats.LibreChat.Audience, "librechat-audience", "codeapi", "audience of these tokens")
	f.StringVar(&fl.libreChat.key, "librechat-key-file", "", "file with the key that verifies these tokens: a public key in PEM, a JSON Web Key Set, or a secret; without it none is accepted")
	f.StringVar(&fl.libreChat.token, "librechat-token-file", "", "file with the token for the calls of LibreChat's users")
	f.StringVar(&fl.Chats.RAGFlow, "ragflow-listen", "", "another address and port, on loopback or a private network, where RAGFlow runs code without a token, e.g. 127.0.0.1:9385; it needs --ragflow-token-file")
	f.StringVar(&fl.ragflowToken, "ragflow-token-file", "", "file with the token for runs at --ragflow-listen")
}

// completeChats reads the files that the flags of chatFlags name.
func (fl *serveFlags) completeChats() (err error) {
	for _, s := range []struct {
		to         *string
		flag, file string
	}{
		{&fl.Chats.RAGFlowToken, "--ragflow-token-file", fl.ragflowToken},
		{&fl.Chats.LibreChat.Key, "--librechat-key-file", fl.libreChat.key},
		{&fl.Chats.LibreChatToken, "--librechat-token-file", fl.libreChat.token},
	} {
		if *s.to, err = secretIn(s.flag, s.file); err != nil {
			return err
		}
	}
	return nil
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
