package client

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/verb"
)

// endpoint is the address of one call.
type endpoint struct {
	method, path string
	err          error // why the call cannot be made
}

// at returns the endpoint of a verb: its first route in the table of verbs, with the ids filled in. Ids are checked
// here, because a malformed id in a path could name something else.
func at(name string, ids ...string) endpoint {
	return endpointOf(name, 0, ids)
}

// socketAt returns the endpoint that serves a verb over a WebSocket.
func socketAt(name string, ids ...string) endpoint {
	v, _ := verb.Find(name)
	for i, route := range v.Routes {
		if strings.HasPrefix(route, "GET ") {
			return endpointOf(name, i, ids)
		}
	}
	panic(fmt.Sprintf("the verb %s is not served over a WebSocket", name))
}

func endpointOf(name string, route int, ids []string) endpoint {
	v, _ := verb.Find(name)
	return filled(v.Routes[route], ids...)
}

// filled returns the endpoint of a route, with the ids filled in.
func filled(route string, ids ...string) endpoint {
	e := endpoint{}
	e.method, e.path, _ = strings.Cut(route, " ")
	for _, id := range ids {
		before, rest, _ := strings.Cut(e.path, "{")
		parameter, after, _ := strings.Cut(rest, "}")
		if e.err == nil {
			e.err = checkParameter(parameter, id)
		}
		e.path = before + id + after
	}
	return e
}

// checkParameter checks the value of a parameter in a path.
func checkParameter(name, value string) error {
	switch name {
	case "process":
		if hutch.CheckID(value) != nil {
			return hutch.Errorf(hutch.NotFound, "there is no process %.80q in the sandbox: list its processes", value)
		}
		return nil
	case "exec":
		if hutch.CheckID(value) != nil {
			return hutch.Errorf(hutch.NotFound, "there is no resumable command %.80q in the sandbox", value)
		}
		return nil
	case "snapshot": // or the name of a template
		return hutch.CheckTemplateName(value)
	case "name":
		return hutch.CheckSecretName(value)
	case "port":
		port, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		return hutch.CheckPort(port)
	}
	return hutch.CheckID(value)
}

// with adds a query.
func (e endpoint) with(q url.Values) endpoint {
	e.path += "?" + q.Encode()
	return e
}

// check records what is wrong with the rest of the request. Only the first error is kept.
func (e endpoint) check(err error) endpoint {
	if e.err == nil {
		e.err = err
	}
	return e
}
