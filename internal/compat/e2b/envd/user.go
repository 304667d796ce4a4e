package envd

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
)

// defaultName is the user that E2B's clients expect, and defaultHome its home. In a sandbox without this user, both
// mean the sandbox's own user.
const (
	defaultName = "user"
	defaultHome = "/home/user"
)

// account is the user of a call.
type account struct {
	user  string // user for requests of package hutch; empty for the sandbox's own user
	home  string
	alias string // the home of the sandbox's own user, if defaultHome means that user: the sandbox has no user defaultName
}

// path returns an absolute path: relative paths, and "~", begin at the home.
func (a account) path(p string) string {
	switch rest, below := strings.CutPrefix(p, "~/"); {
	case p == "" || p == "~":
		return a.home
	case below:
		p = a.home + "/" + rest
	case p[0] != '/':
		p = a.home + "/" + p
	}
	p = path.Clean(p)
	if rest, ok := strings.CutPrefix(p, defaultHome); ok && a.alias != "" && (rest == "" || rest[0] == '/') {
		return a.alias + rest
	}
	return p
}

// people are the users and groups of a sandbox.
type people struct {
	read   time.Time
	users  map[string]person
	names  map[int]string // names of users, by their number
	groups map[int]string // names of groups
	own    person         // the sandbox's own user
}

type person struct {
	uid, gid int
	home     string
}

// accounts remembers the people of sandboxes. The zero value is empty.
type accounts struct {
	mu  sync.Mutex
	all map[string]*people
}

const (
	maxPeople = 1024             // sandboxes whose people are remembered
	newPeople = 30 * time.Second // after that, /etc/passwd is read again
	maxPasswd = 64 << 10         // most bytes of /etc/passwd that are read
	maxNames  = 1000             // most users, and most groups, that are read
)

// basicUser returns the user that a client asks for; empty for the default.
func basicUser(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}

// account returns the user of that name.
func (h *Handler) account(q request, name string) (account, error) {
	ps, err := h.people(q, newPeople)
	if err != nil {
		return account{}, err
	}
	if _, known := ps.users[name]; !known && name != "" && name != defaultName {
		if ps, err = h.people(q, time.Second); err != nil { // the user may be new
			return account{}, err
		}
	}
	_, has := ps.users[defaultName]
	own := account{home: ps.own.home}
	if !has {
		own.alias = own.home
	}
	u, known := ps.users[name]
	switch {
	case name == "" || name == defaultName && !has:
		return own, nil
	case !known:
		return account{}, rpcErrorf(unauthenticated, "invalid username: '%.100s'", name)
	case u.uid == ps.own.uid:
		return own, nil
	}
	return account{user: name, home: u.home, alias: own.alias}, nil
}

// filesAccount does the same as account, and gives later calls of the request the rights of the user, for file
// operations.
func (h *Handler) filesAccount(q *request, name string) (account, error) {
	a, err := h.account(*q, name)
	if err == nil && a.user != "" {
		q.ctx = hutch.AsUser(q.ctx, a.user)
	}
	return a, err
}

// people returns the users of a sandbox, as they were read at most age ago.
func (h *Handler) people(q request, age time.Duration) (*people, error) {
	here := place(q.ctx, q.target)
	h.accounts.mu.Lock()
	ps := h.accounts.all[here]
	h.accounts.mu.Unlock()
	if ps != nil && time.Since(ps.read) < age {
		return ps, nil
	}
	fresh, err := readPeople(q, ps)
	if err != nil {
		return nil, err
	}
	h.accounts.mu.Lock()
	defer h.accounts.mu.Unlock()
	if len(h.accounts.all) >= maxPeople || h.accounts.all == nil {
		h.accounts.all = map[string]*people{}
	}
	h.accounts.all[here] = fresh
	return fresh, nil
}

// readPeople reads the files that name the users and groups of a sandbox. Its own user does not change.
func readPeople(q request, before *people) (*people, error) {
	ps := &people{read: time.Now(), users: map[string]person{}, names: map[int]string{}, groups: map[int]string{}}
	passwd, err := readWhole(q, "/etc/passwd")
	if err != nil {
		return nil, err
	}
	for _, l := range passwd[:min(len(passwd), maxNames)] {
		uid, bad := strconv.Atoi(l[2])
		if len(l) < 7 || bad != nil {
			continue
		}
		gid, _ := strconv.Atoi(l[3])
		if _, twice := ps.users[l[0]]; !twice {
			ps.users[l[0]] = person{uid, gid, l[5]}
		}
		if ps.names[uid] == "" {
			ps.names[uid] = l[0]
		}
	}
	groups, err := readWhole(q, "/etc/group")
	if err != nil {
		return nil, err
	}
	for _, l := range groups[:min(len(groups), maxNames)] {
		if gid, bad := strconv.Atoi(l[2]); bad == nil && ps.groups[gid] == "" {
			ps.groups[gid] = l[0]
		}
	}
	if before != nil {
		ps.own = before.own
		return ps, nil
	}
	ps.own, err = ownUser(q, ps)
	return ps, err
}

// readWhole returns the fields of each line of a file of the sandbox. A file that cannot be read is empty.
func readWhole(q request, name string) (lines [][]string, err error) {
	var b bytes.Buffer
	_, err = q.target.Service.ReadFile(unmetered(q.ctx), q.target.Sandbox, hutch.ReadRequest{Path: name, Length: maxPasswd}, &b)
	switch kind := hutch.KindOf(err); {
	case err == nil:
	case gone(err) || kind == hutch.Unavailable || kind == hutch.Internal || q.ctx.Err() != nil:
		return nil, err
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		if fields := strings.Split(line, ":"); len(fields) > 2 {
			lines = append(lines, fields)
		}
	}
	return lines, nil
}

// ownUser returns the user that the commands of a sandbox run as. For our host image it is known; in another image, a
// command finds it.
func ownUser(q request, ps *people) (person, error) {
	if u, ok := ps.users[defaultName]; ok && q.target.Record.Image == "host" {
		return u, nil
	}
	ctx, cancel := context.WithTimeout(unmetered(q.ctx), 30*time.Second)
	defer cancel()
	res, err := q.target.Service.Exec(ctx, q.target.Sandbox, hutch.ExecRequest{Command: `echo "$HOME"; id -u; id -g`}, nil)
	if err != nil {
		return person{}, err
	}
	home, ids, _ := strings.Cut(string(res.Stdout), "\n")
	uid, gid, _ := strings.Cut(strings.TrimSpace(ids), "\n")
	p := person{home: "/"}
	if strings.HasPrefix(home, "/") {
		p.home = path.Clean(home)
	}
	var bad [2]error
	p.uid, bad[0] = strconv.Atoi(uid)
	p.gid, bad[1] = strconv.Atoi(gid)
	if errors.Join(bad[:]...) != nil {
		p.uid, p.gid = -1, -1 // no such program: treat the user as missing from /etc/passwd
	}
	return p, nil
}

// nameOf returns the name of a user or group, or its number.
func nameOf(names map[int]string, id int) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.Itoa(id)
}
