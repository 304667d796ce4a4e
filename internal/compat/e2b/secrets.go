package e2b

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"hutch"
)

// E2B's secrets are the caller's secrets. Names of E2B have small letters and hyphens, which names of Hutch cannot
// have: a secret keeps the name that it was created with in a label. Other secrets, such as those of hutch secret, are
// shown under Hutch's name in small letters.

// labelName is the label of a secret with E2B's name.
const labelName = labelPrefix + "name"

// secretIDPrefix begins the id of a secret; Hutch's name of the secret follows.
const secretIDPrefix = "sec_"

// secretInfo is the record of a secret as E2B shows it.
type secretInfo struct {
	SecretID  string            `json:"secretID"`
	Name      string            `json:"name"`
	Version   int               `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

func secretInfoOf(s hutch.Secret) secretInfo {
	info := secretInfo{SecretID: secretIDPrefix + s.Name, Name: secretName(s), Version: s.Version, Metadata: map[string]string{}}
	for name, value := range s.Labels {
		if !strings.HasPrefix(name, labelPrefix) {
			info.Metadata[name] = value
		}
	}
	if s.CreatedAt != nil && s.UpdatedAt != nil {
		info.CreatedAt, info.UpdatedAt = *s.CreatedAt, *s.UpdatedAt
	}
	return info
}

// secretName returns the name of a secret of Hutch for E2B's clients.
func secretName(s hutch.Secret) string { return cmp.Or(s.Labels[labelName], strings.ToLower(s.Name)) }

var secretNames = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// nameOf returns Hutch's name for a new secret. name is E2B's name of the secret, in small letters.
func nameOf(name string) (string, error) {
	if !secretNames.MatchString(name) || strings.HasPrefix(name, secretIDPrefix) {
		return "", hutch.Errorf(hutch.Invalid, "%.80q cannot be the name of a secret: give 1 to 63 letters, digits, hyphens and underscores that begin with a letter or digit, and not with %s", name, secretIDPrefix).Naming(hutch.AboutField, "name")
	}
	ours := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if ours[0] >= '0' && ours[0] <= '9' {
		ours = "_" + ours
	}
	return ours, nil
}

// ownSecrets returns the caller's secrets, by name.
func (s *Server) ownSecrets(ctx context.Context) ([]hutch.Secret, error) {
	if s.opt.Secrets == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "this server has no secrets")
	}
	all, err := s.opt.Secrets.Secrets(ctx)
	return slices.DeleteFunc(all, func(x hutch.Secret) bool { return x.Shared }), err
}

// secret finds one of the caller's secrets by its id or name.
func (s *Server) secret(ctx context.Context, name string) (hutch.Secret, error) {
	all, err := s.ownSecrets(ctx)
	if err != nil {
		return hutch.Secret{}, err
	}
	found, ok := findSecret(all, name)
	if !ok {
		return hutch.Secret{}, hutch.Errorf(hutch.NotFound, "there is no secret %.80q: list the secrets", name)
	}
	return found, nil
}

// findSecret finds a secret by its id or by the name that E2B's clients know it by.
func findSecret(all []hutch.Secret, name string) (hutch.Secret, bool) {
	i := slices.IndexFunc(all, func(x hutch.Secret) bool {
		return secretIDPrefix+x.Name == name || secretName(x) == strings.ToLower(name)
	})
	if i < 0 {
		return hutch.Secret{}, false
	}
	return all[i], true
}

// secretLabels returns the labels of a secret with a name and metadata of E2B.
func secretLabels(name string, metadata map[string]string) (map[string]string, error) {
	for key := range metadata {
		if err := checkMetadataName(key); err != nil {
			return nil, err
		}
	}
	labels := maps.Clone(metadata)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelName] = name
	return labels, nil
}

func (s *Server) createSecret(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Name     string            `json:"name"`
		Value    string            `json:"value"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	name := strings.ToLower(req.Name)
	ours, err := nameOf(name)
	if err != nil {
		return 0, nil, err
	}
	labels, err := secretLabels(name, req.Metadata)
	if err != nil {
		return 0, nil, err
	}
	all, err := s.ownSecrets(r.Context())
	if err != nil {
		return 0, nil, err
	}
	if _, ok := findSecret(all, name); ok {
		return 0, nil, hutch.Errorf(hutch.Conflict, "there is a secret %s already: update it, or choose another name", name)
	}
	if x, ok := findSecret(all, secretIDPrefix+ours); ok {
		return 0, nil, hutch.Errorf(hutch.Conflict, "the secret %s has the same name on this server, %s: choose another name", secretName(x), ours)
	}
	made, err := s.opt.Secrets.SetSecret(r.Context(), ours, hutch.SecretRequest{Value: req.Value, Labels: labels, Create: true})
	return http.StatusCreated, secretInfoOf(made), err
}

// updateSecret gives a secret another value. A brokered secret stays brokered.
func (s *Server) updateSecret(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Value    string            `json:"value"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	old, err := s.secret(r.Context(), r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	set := hutch.SecretRequest{Value: req.Value, Brokered: old.Brokered}
	if req.Metadata != nil {
		if set.Labels, err = secretLabels(secretName(old), req.Metadata); err != nil {
			return 0, nil, err
		}
	}
	made, err := s.opt.Secrets.SetSecret(r.Context(), old.Name, set)
	return http.StatusOK, secretInfoOf(made), err
}

func (s *Server) getSecret(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	found, err := s.secret(r.Context(), r.PathValue("id"))
	return http.StatusOK, secretInfoOf(found), err
}

func (s *Server) listSecrets(w http.ResponseWriter, r *http.Request) (int, any, error) {
	v := r.URL.Query()
	limit, err := readLimit(v)
	if err != nil {
		return 0, nil, err
	}
	all, err := s.ownSecrets(r.Context())
	if err != nil {
		return 0, nil, err
	}
	list := make([]secretInfo, len(all))
	for i, x := range all {
		list[i] = secretInfoOf(x)
	}
	page, err := pageOf(w, list, v.Get("nextToken"), limit, true, func(x secretInfo) string { return x.SecretID })
	return http.StatusOK, page, err
}

func (s *Server) deleteSecret(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	found, err := s.secret(r.Context(), r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.opt.Secrets.DeleteSecret(r.Context(), found.Name)
}

// secretPlaceholder is E2B's reference to a secret in the value of a header.
var secretPlaceholder = regexp.MustCompile(`\$\{e2b\.secrets\.([^{}]*)\}`)

// referTo turns references to secrets in header rules into Hutch's. As with E2B, the secret need not exist before a request
// is made.
func (s *Server) referTo(ctx context.Context, rules hutch.HeaderRules) error {
	var all []hutch.Secret
	for _, rule := range rules {
		for header, value := range rule.Headers {
			if !secretPlaceholder.MatchString(string(value)) {
				continue
			}
			var err error
			if all == nil {
				if all, err = s.ownSecrets(ctx); err != nil {
					return err
				}
			}
			text := secretPlaceholder.ReplaceAllStringFunc(string(value), func(reference string) string {
				name := secretPlaceholder.FindStringSubmatch(reference)[1]
				if found, ok := findSecret(all, name); ok {
					return hutch.SecretReference(found.Name)
				}
				ours, unfit := nameOf(strings.ToLower(name))
				err = cmp.Or(err, unfit)
				return hutch.SecretReference(ours)
			})
			if err != nil {
				return err
			}
			rule.Headers[header] = hutch.HiddenValue(text)
		}
	}
	return nil
}
