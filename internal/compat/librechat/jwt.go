package librechat

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"hutch"
)

// VerifierOptions say which tokens of LibreChat are accepted.
type VerifierOptions struct {
	Issuer   string // default "librechat"
	Audience string // default "codeapi"
	// Key verifies tokens: public keys as a JSON Web Key Set, a public key in PEM, or a secret that LibreChat has too.
	Key string
}

// Verifier checks the tokens (JWT) that LibreChat signs for its users.
type Verifier struct {
	issuer, audience string
	keys             []key
}

// key verifies the tokens with one key id, or all tokens. A key has one algorithm, so a token cannot choose how it is
// verified.
type key struct {
	id        string // empty for any
	algorithm jose.SignatureAlgorithm
	key       any
}

const (
	minSecret   = 32               // bytes
	longestLife = 5 * time.Minute  // longest life of a token
	skew        = 30 * time.Second // between the clocks
	maxToken    = 16 << 10         // bytes
)

// NewVerifier returns a verifier, or the error of an invalid key.
func NewVerifier(opt VerifierOptions) (*Verifier, error) {
	v := &Verifier{issuer: opt.Issuer, audience: opt.Audience}
	if v.issuer == "" {
		v.issuer = "librechat"
	}
	if v.audience == "" {
		v.audience = "codeapi"
	}
	var err error
	switch text := strings.TrimSpace(strings.TrimPrefix(opt.Key, "\ufeff")); {
	case strings.HasPrefix(text, "{"):
		v.keys, err = keySet(text)
	case strings.Contains(text, "-----BEGIN"):
		v.keys, err = publicKey(text)
	case isPublic(text):
		err = errKey
	case len(text) < minSecret:
		err = hutch.Errorf(hutch.Invalid, "the secret of LibreChat's tokens has %d bytes: use %d at least", len(text), minSecret)
	default:
		v.keys = []key{{"", jose.HS256, []byte(text)}}
	}
	return v, err
}

// isPublic reports whether a text is a public key in a form that this server does not read, or an address of keys. If
// such a text were used as a secret, everybody could sign tokens.
func isPublic(text string) bool {
	for _, begin := range []string{"[", "ssh-", "ecdsa-", "http://", "https://"} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return false
	}
	_, err = x509.ParsePKIXPublicKey(der)
	return err == nil
}

func publicKey(text string) ([]key, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errKey
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errKey.Because(err)
	}
	k, ok := keyOf("", public)
	if !ok {
		return nil, errKey
	}
	return []key{k}, nil
}

var errKey = hutch.Errorf(hutch.Invalid, "the key of LibreChat's tokens is not a public key of Ed25519 or RSA: give it in PEM (BEGIN PUBLIC KEY) or as a JSON Web Key Set, or give a secret")

func keySet(text string) (list []key, err error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return nil, errKey.Because(err)
	}
	for _, k := range set.Keys {
		found, ok := keyOf(k.KeyID, k.Key)
		if !ok || k.KeyID == "" {
			return nil, errKey
		}
		list = append(list, found)
	}
	if len(list) == 0 {
		return nil, errKey
	}
	return list, nil
}

func keyOf(id string, public crypto.PublicKey) (key, bool) {
	switch k := public.(type) {
	case ed25519.PublicKey:
		return key{id, jose.EdDSA, k}, true
	case *rsa.PublicKey:
		return key{id, jose.RS256, k}, k.N.BitLen() >= 2048
	}
	return key{}, false
}

// claims are the claims that we read in addition to the registered ones.
type claims struct {
	Tenant string `json:"tenant_id"`
}

// errToken is the same error for every token that is not accepted, whatever the reason.
var errToken = hutch.Errorf(hutch.Denied, "Invalid bearer token: it must be signed by the configured issuer for this service, name a user and last five minutes at most")

// Verify returns the person that a token names.
func (v *Verifier) Verify(token string) (Person, error) {
	parsed, err := parse(token)
	if err != nil {
		return Person{}, errToken
	}
	header := parsed.Headers[0]
	for _, k := range v.keys {
		if string(k.algorithm) != header.Algorithm || k.id != "" && k.id != header.KeyID {
			continue
		}
		var c jwt.Claims
		var more claims
		if parsed.Claims(k.key, &c, &more) == nil {
			return v.person(c, more)
		}
	}
	return Person{}, errToken
}

func parse(token string) (*jwt.JSONWebToken, error) {
	if len(token) > maxToken {
		return nil, errToken
	}
	return jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA, jose.RS256, jose.HS256})
}

// maxUser is the longest name of a user or tenant, in bytes.
const maxUser = 256

// person checks claims whose signature is right.
func (v *Verifier) person(c jwt.Claims, more claims) (Person, error) {
	now := time.Now()
	switch {
	case c.Issuer != v.issuer || !slices.Contains(c.Audience, v.audience):
	case c.Expiry == nil || c.IssuedAt == nil || c.Expiry.Time().Sub(c.IssuedAt.Time()) > longestLife || !c.Expiry.Time().After(c.IssuedAt.Time()):
	case c.ValidateWithLeeway(jwt.Expected{Time: now}, skew) != nil:
	case c.Subject == "" || len(c.Subject) > maxUser || len(more.Tenant) > maxUser:
	default:
		return Person{Tenant: "tenant " + more.Tenant, User: "user " + c.Subject}, nil
	}
	return Person{}, errToken
}

// claims reports whether a token claims to be from the issuer of v. The claim is not verified.
func (v *Verifier) claims(token string) bool {
	parsed, err := parse(token)
	if err != nil {
		return false
	}
	var c jwt.Claims
	return parsed.UnsafeClaimsWithoutVerification(&c) == nil && c.Issuer == v.issuer
}

// Front returns a handler in front of a guard. A request with a token of LibreChat's issuer is passed on for the person
// that it names, with a token of Hutch in its place, or is refused. Every other request is passed on unchanged: the
// guard handles it, and refuses tokens of other issuers.
func Front(next http.Handler, v *Verifier, token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := bearer(r)
		if !ok || !strings.HasPrefix(r.URL.Path, Prefix+"/") || !v.claims(given) {
			next.ServeHTTP(w, r)
			return
		}
		who, err := v.Verify(given)
		if err != nil || len(r.Header.Values("X-Api-Key")) > 0 {
			Refuse(w, http.StatusUnauthorized, errToken)
			return
		}
		r = r.WithContext(withPerson(r.Context(), who))
		r.Header.Set("Authorization", "Bearer "+token)
		next.ServeHTTP(w, r)
	})
}

// bearer returns the only bearer token of a request.
func bearer(r *http.Request) (string, bool) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(given[0], " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}
