package e2b

import (
	"maps"
	"slices"
	"sync"
)

// place identifies a sandbox among those of all owners.
type place struct{ owner, sandbox string }

// calls are the open calls of clients, by sandbox. They end before a sandbox is paused, because a sandbox in use cannot
// be paused. The zero value is empty.
type calls struct {
	mu   sync.Mutex
	last int
	all  map[place]map[int]func()
}

// add records a call, with the function end that ends the call. The returned function removes the record.
func (c *calls) add(at place, end func()) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	key := c.last
	if c.all == nil {
		c.all = map[place]map[int]func(){}
	}
	if c.all[at] == nil {
		c.all[at] = map[int]func(){}
	}
	c.all[at][key] = end
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.all[at], key); len(c.all[at]) == 0 {
			delete(c.all, at)
		}
	}
}

// end ends the calls of a sandbox.
func (c *calls) end(at place) {
	c.mu.Lock()
	ends := slices.Collect(maps.Values(c.all[at]))
	c.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
