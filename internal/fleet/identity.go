package fleet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/problem"
)

// Identity is what makes a machine a node of a fleet. It is kept in one file, readable only by the file's owner.
type Identity struct {
	Node string `json:"node"`
	// Certificate and Key belong to the node. Authority is the certificate of the fleet's authority. All are PEM.
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	// Store is the URL of the fleet's database, and SecretsKey decrypts the secrets in it.
	Store      string `json:"store"`
	SecretsKey string `json:"secretsKey"`
}

const (
	certificateLife = 10 * 365 * 24 * time.Hour // removing a node's row revokes its certificate
	skew            = 24 * time.Hour            // largest difference between the clocks of nodes
)

// domain is the parent of the nodes' names in certificates. It does not resolve (RFC 2606).
const domain = "node.hutch.invalid"

// ReadIdentity reads the identity in a file. If the file is missing, the error is fs.ErrNotExist.
func ReadIdentity(path string) (*Identity, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, errors.Join(err, hutch.Errorf(hutch.Denied, "others than its owner may read %s, and could pass for this node: `chmod 600` it or, if somebody may have, remove the node and join again", path))
	}
	var id Identity
	if err := json.Unmarshal(b, &id); err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "%s is not the identity of a node: put it back, or remove it and join again with `hutch node join`", path).Because(err)
	}
	return &id, nil
}

// Write writes an identity to a new file.
func (id *Identity) Write(path string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	err = durable.Create(path, append(b, '\n'))
	if errors.Is(err, fs.ErrExist) {
		return hutch.Errorf(hutch.Conflict, "this machine is a node already: its identity is %s; remove that file, if the node was removed from its fleet", path)
	}
	return err
}

// Replace replaces the identity in a file.
func (id *Identity) Replace(path string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(path, append(b, '\n'))
}

func (id *Identity) pair() (tls.Certificate, error) {
	return tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key))
}

// print returns the fingerprint of the node's certificate, in the form that the directory has.
func (id *Identity) print() (string, error) {
	block, _ := pem.Decode([]byte(id.Certificate))
	if block == nil {
		return "", hutch.Errorf(hutch.Invalid, "the certificate of the node cannot be read: join again with `hutch node join`")
	}
	return printOf(block.Bytes), nil
}

func printOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

func (id *Identity) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(id.Authority))
	return pool
}

// signer is a fleet's authority with its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Found makes the first node of a fleet, in one transaction. It refuses a database whose fleet has other nodes, because
// this server must join them instead. If a server was killed after the transaction, before it wrote its identity, it
// calls Found again and gets a new certificate of the same authority.
func Found(ctx context.Context, d *Directory, node, store, secretsKey string) (*Identity, error) {
	if err := hutch.CheckID(node); err != nil {
		return nil, err
	}
	nodeKey, request, err := newKey()
	if err != nil {
		return nil, err
	}
	var id *Identity
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if err := lockTables(ctx, tx); err != nil {
			return err
		}
		s, err := foundAuthority(ctx, tx, node, secretsKey)
		if err != nil {
			return err
		}
		if id, err = s.sign(node, request); err != nil {
			return err
		}
		print, err := id.print()
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO fleet_nodes (id, certificate) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET certificate = $2", node, print)
		return err
	})
	if err != nil {
		return nil, databaseError(err)
	}
	id.Key, id.Store, id.SecretsKey = nodeKey, store, secretsKey
	return id, nil
}

// foundAuthority makes the authority of a new fleet. If there is an authority that no node uses, it returns that one.
// This is so when all nodes were removed, or when the only node is the founding one and was never started.
func foundAuthority(ctx context.Context, tx pgx.Tx, node, secretsKey string) (*signer, error) {
	var there, unused bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM fleet_authority),
		NOT EXISTS (SELECT 1 FROM fleet_nodes WHERE id <> $1 OR epoch > 0)`, node).Scan(&there, &unused)
	if err != nil {
		return nil, err
	}
	if !unused {
		return nil, hutch.Errorf(hutch.Conflict, "this database has a fleet already: on one of its nodes run `hutch node token`, and here `hutch node join URL TOKEN`")
	}
	if there {
		return readAuthority(ctx, tx, secretsKey)
	}
	s, err := newAuthority()
	if err != nil {
		return nil, err
	}
	sealed, err := s.sealKey(secretsKey)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO fleet_authority (certificate, sealed_key) VALUES ($1, $2)", s.certificate(), sealed)
	return s, err
}

func newAuthority() (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Hutch fleet " + rand.Text()[:8]},
		NotBefore: time.Now().Add(-skew), NotAfter: time.Now().Add(certificateLife + skew),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{domain},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &signer{cert, key}, err
}

// certificate returns the authority's certificate, as PEM.
func (s *signer) certificate() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}))
}

func (s *signer) sealKey(secretsKey string) ([]byte, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, err
	}
	return seal(secret, secretsKey)
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader does not fail
	return n
}

// newKey makes a key, and the request for its certificate. The key never leaves its machine.
func newKey() (key string, request []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return "", nil, err
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, k)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), request, err
}

// sign makes the certificate of a node. It uses only the key of the request.
func (s *signer) sign(node string, request []byte) (*Identity, error) {
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the request for a certificate cannot be used").Because(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: node}, DNSNames: []string{node + "." + domain},
		NotBefore: time.Now().Add(-skew), NotAfter: time.Now().Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, r.PublicKey, s.key)
	if err != nil {
		return nil, err
	}
	return &Identity{
		Node:        node,
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Authority:   s.certificate(),
	}, nil
}

var errNoFleet = hutch.Errorf(hutch.NotFound, "this database has no fleet: start its first node with `hutch serve --store URL --fleet-listen ADDRESS`")

// readAuthority reads the fleet's authority. Its key is in the database, encrypted with the key of the secrets, which
// is not in the database. So any node can admit another one, but access to the database alone is not enough to make a
// machine a node.
func readAuthority(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, secretsKey string) (*signer, error) {
	var text string
	var sealed []byte
	err := db.QueryRow(ctx, "SELECT certificate, sealed_key FROM fleet_authority").Scan(&text, &sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNoFleet
	}
	if err != nil {
		return nil, databaseError(err)
	}
	secret, err := unseal(sealed, secretsKey)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(secret)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(text))
	k, ok := key.(*ecdsa.PrivateKey)
	if block == nil || !ok {
		return nil, hutch.Errorf(hutch.Internal, "the fleet's authority in the database is broken: restore the database from a backup")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return &signer{cert, k}, err
}

func seal(secret []byte, key string) ([]byte, error) {
	identity, err := age.ParseX25519Identity(strings.TrimSpace(key))
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the key of the secrets cannot be used: give one that `age-keygen` has made")
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, identity.Recipient())
	if err != nil {
		return nil, err
	}
	_, err = w.Write(secret)
	err = errors.Join(err, w.Close())
	return sealed.Bytes(), err
}

func unseal(sealed []byte, key string) ([]byte, error) {
	identity, err := age.ParseX25519Identity(strings.TrimSpace(key))
	if err == nil {
		var r io.Reader
		if r, err = age.Decrypt(bytes.NewReader(sealed), identity); err == nil {
			return io.ReadAll(r)
		}
	}
	return nil, hutch.Errorf(hutch.Invalid, "the key of the secrets does not open this fleet's authority: give this node the key that the fleet has").Because(errors.New("unseal the authority"))
}

// tokenPrefix marks tokens for joining.
const tokenPrefix = "hutch-join-"

// NewToken makes a token with which one machine can join until life is over. The token also names the authority that
// the new machine must trust, so a man in the middle cannot pretend to be the fleet.
func NewToken(ctx context.Context, d *Directory, id *Identity, life time.Duration) (string, error) {
	secret := make([]byte, 32)
	rand.Read(secret)
	hash := sha256.Sum256(secret)
	_, err := d.db.Exec(ctx, "INSERT INTO fleet_tokens (hash, expires) VALUES ($1, now() + $2::interval)", hash[:], life)
	if err != nil {
		return "", databaseError(err)
	}
	d.db.Exec(ctx, "DELETE FROM fleet_tokens WHERE expires < now()")
	print, err := fingerprint(id.Authority)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(secret, print...)), err
}

func fingerprint(certificate string) ([]byte, error) {
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return nil, hutch.Errorf(hutch.Invalid, "the certificate of the fleet's authority cannot be read")
	}
	sum := sha256.Sum256(block.Bytes)
	return sum[:], nil
}

func parseToken(token string) (secret, print []byte, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(token), tokenPrefix)
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil || len(b) != 64 {
		return nil, nil, hutch.Errorf(hutch.Invalid, "this is not a token for joining: make one with `hutch node token` on a node of the fleet")
	}
	return b[:32], b[32:], nil
}

// joining is the request of a new machine.
type joining struct {
	Secret  []byte `json:"secret"`
	Node    string `json:"node"`
	Request []byte `json:"request"`
}

// admit adds a new node, if its token is valid and was not used before.
func (d *Directory) admit(ctx context.Context, self *Identity, j joining) (*Identity, error) {
	if err := hutch.CheckID(j.Node); err != nil {
		return nil, err
	}
	hash := sha256.Sum256(j.Secret)
	var good bool // checked first, so that strangers cannot make this node sign
	if err := d.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM fleet_tokens WHERE hash = $1 AND expires > now())", hash[:]).Scan(&good); err != nil {
		return nil, databaseError(err)
	}
	if !good {
		return nil, errNoToken
	}
	s, err := readAuthority(ctx, d.db, self.SecretsKey)
	if err != nil {
		return nil, err
	}
	id, err := s.sign(j.Node, j.Request)
	if err != nil {
		return nil, err
	}
	print, err := id.print()
	if err != nil {
		return nil, err
	}
	id.Store, id.SecretsKey = self.Store, self.SecretsKey
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM fleet_tokens WHERE hash = $1 AND expires > now()", hash[:])
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errNoToken
		}
		tag, err = tx.Exec(ctx, "INSERT INTO fleet_nodes (id, certificate) VALUES ($1, $2) ON CONFLICT DO NOTHING", j.Node, print)
		if err == nil && tag.RowsAffected() == 0 { // the rollback after this error makes the token valid again
			return hutch.Errorf(hutch.Conflict, "the fleet has a node %q: choose another name with --name; if that machine is gone or never began, remove it with `hutch node rm %s`", j.Node, j.Node)
		}
		return err
	})
	if err != nil {
		return nil, databaseError(err)
	}
	d.notifyNodes(ctx)
	return id, nil
}

var errNoToken = hutch.Errorf(hutch.Denied, "the token was used, has expired, or is of another fleet: make one with `hutch node token`")

// joinPath is the only path of the door that needs no certificate.
const joinPath = "/fleet/join"

// Join makes this machine a node: it asks the node at url, the address of its door.
func Join(ctx context.Context, url, token, node string) (*Identity, error) {
	secret, print, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	if err := hutch.CheckID(node); err != nil {
		return nil, err
	}
	key, request, err := newKey()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(joining{secret, node, request})
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "://") {
		url = "https://" + url
	}
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // signedBy verifies the chain, because the token names the authority
		VerifyConnection: func(s tls.ConnectionState) error { return signedBy(s.PeerCertificates, print) },
	}}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(url, "/")+joinPath, bytes.NewReader(body))
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "%q is not the URL of a node: give https://HOST:PORT, as its --fleet-listen says", url)
	}
	resp, err := c.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*hutch.Error](err); ok {
			return nil, e
		}
		return nil, hutch.Errorf(hutch.Unavailable, "no node of a fleet answers at %s: give the address of its --fleet-listen, and let this machine reach it", url).Because(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, problem.Read(resp.StatusCode, answer).Err()
	}
	var id Identity
	if err := json.Unmarshal(answer, &id); err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the server at %s is not a node of a fleet: check the URL", url).Because(err)
	}
	id.Key = key
	if _, err := id.pair(); err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the node at %s sent a certificate of another key: try again", url).Because(err)
	}
	return &id, nil
}

// signedBy returns an error unless a chain ends in the authority with the fingerprint print.
func signedBy(chain []*x509.Certificate, print []byte) error {
	wrong := hutch.Errorf(hutch.Denied, "what answers is not the fleet that the token is of: check the URL; if it is right, somebody may be between this machine and the fleet")
	if len(chain) < 2 {
		return wrong
	}
	authority := chain[len(chain)-1]
	sum := sha256.Sum256(authority.Raw)
	if subtle.ConstantTimeCompare(sum[:], print) != 1 {
		return wrong
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return wrong.Because(err)
	}
	return nil
}

func (id *Identity) authorityDER() ([]byte, error) {
	block, _ := pem.Decode([]byte(id.Authority))
	if block == nil {
		return nil, hutch.Errorf(hutch.Invalid, "the certificate of the fleet's authority cannot be read: join again with `hutch node join`")
	}
	return block.Bytes, nil
}
