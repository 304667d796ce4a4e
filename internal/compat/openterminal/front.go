package openterminal

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/coder/websocket"

	"hutch"
)

const (
	helloTime = 10 * time.Second // time limit for the first message
	maxHello  = 8 << 10          // most bytes of the first message
)

// connection is the key of a value in a context: the WebSocket of a client that sent its token in the first message.
type connection struct{}

// first is a WebSocket after its first message.
type first struct {
	conn  *websocket.Conn
	token string
	taken bool // the handler has shown something on it
}

var terminalPath = regexp.MustCompile("^" + Prefix + "/api/terminals/[^/]+$")

// Front accepts the WebSockets of Open Terminal's clients, which send their token in the first message. Front reads
// that message, and then calls the handler next as if the request had had the token. So all checks of next also apply
// to these clients. Until then a client has only a connection, and must send its token within ten seconds. Front calls
// claim to count the connection among those of clients without a token, which have only a share of the server's
// connections; claim returns false if the share is used up.
func Front(next http.Handler, claim func(ctx context.Context, class string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !wantsSocket(r) || !terminalPath.MatchString(r.URL.Path) || r.Header.Get("Authorization") != "" {
			next.ServeHTTP(w, r)
			return
		}
		if !claim(r.Context(), "clients without a token yet") {
			Refuse(w, http.StatusTooManyRequests, errWaiting)
			return
		}
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // next checks the origin, before anything is done
		if err != nil {
			return // Accept has answered
		}
		defer conn.CloseNow()
		f, err := hello(r.Context(), conn)
		if err != nil {
			conn.Close(closeAuth, err.Error())
			return
		}
		asked := r.Clone(context.WithValue(r.Context(), connection{}, f))
		asked.Header.Set("Authorization", "Bearer "+f.token)
		for _, name := range []string{"Upgrade", "Connection", "Sec-Websocket-Protocol", "Cookie"} {
			asked.Header.Del(name)
		}
		answer := &answer{header: http.Header{}}
		next.ServeHTTP(answer, asked)
		if !f.taken {
			conn.Close(answer.code(), answer.reason())
		}
	})
}

var errWaiting = hutch.Errorf(hutch.Exhausted, "too many clients are connected that have not sent their token yet: try again in a moment").With("limit", "connections").With("retryAfter", 1)

var errHello = errors.New("the first message has no token, or did not come in time")

// hello reads the first message of a client.
func hello(ctx context.Context, conn *websocket.Conn) (*first, error) {
	late := time.AfterFunc(helloTime, func() { conn.Close(closeAuth, errHello.Error()) }) // a context that ends would close it without a reason
	defer late.Stop()
	conn.SetReadLimit(maxHello)
	typ, b, err := conn.Read(ctx)
	var m struct{ Type, Token string }
	if err != nil || typ != websocket.MessageText || json.Unmarshal(b, &m) != nil || m.Type != "auth" {
		return nil, errHello
	}
	return &first{conn: conn, token: m.Token}, nil
}

// answer records the response of the next handler to a client whose connection is already open.
type answer struct {
	header http.Header
	status int
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

const maxReason = 4 << 10 // bytes of an answer that are read

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b[:min(len(b), maxReason-len(a.body))]...)
	return len(b), nil
}

// code returns the code with which the WebSocket is closed.
func (a *answer) code() websocket.StatusCode {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return closeAuth
	case http.StatusNotFound:
		return closeMissing
	case http.StatusConflict:
		return closeAttached
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return websocket.StatusTryAgainLater
	}
	return websocket.StatusInternalError
}

func (a *answer) reason() string {
	var said struct{ Detail string }
	if json.Unmarshal(a.body, &said) != nil || said.Detail == "" {
		said.Detail = http.StatusText(a.status)
	}
	return strings.ToValidUTF8(said.Detail[:min(len(said.Detail), 120)], "")
}
