package buildlog

import (
	"fmt"

	"hutch"
)

const (
	maxHead   = 64 << 10  // bytes that are kept of the beginning
	maxTail   = 192 << 10 // bytes that are kept of the end
	eventCost = 128       // bytes of memory for an event, in addition to its texts
)

// output is the beginning and the end of a build's events. Positions count all events.
type output struct {
	head, tail         []hutch.BuildEvent
	headSize, tailSize int
	dropped            int // events between head and tail
}

func cost(e hutch.BuildEvent) int { return len(e.Name) + len(e.Text) + eventCost }

func (o *output) size() int { return o.headSize + o.tailSize }

func (o *output) add(e hutch.BuildEvent) {
	if len(o.tail) == 0 && o.dropped == 0 && o.headSize+cost(e) <= maxHead {
		o.head = append(o.head, e)
		o.headSize += cost(e)
		return
	}
	o.tail = append(o.tail, e)
	o.tailSize += cost(e)
	for o.tailSize > maxTail && len(o.tail) > 1 {
		o.tailSize -= cost(o.tail[0])
		o.tail[0] = hutch.BuildEvent{} // its texts can be freed at once
		o.tail = o.tail[1:]
		o.dropped++
	}
}

// from returns the events from a position, and the position after the last. A warning stands for events that are not
// kept.
func (o *output) from(next int) ([]hutch.BuildEvent, int) {
	var list []hutch.BuildEvent
	first := len(o.head) + o.dropped // position of the tail
	end := first + len(o.tail)
	if next < len(o.head) {
		list, next = append(list, o.head[next:]...), len(o.head)
	}
	if next < first {
		list = append(list, hutch.BuildEvent{State: hutch.BuildWarning, Text: fmt.Sprintf("%d lines of the output are not kept", first-next)})
		next = first
	}
	return append(list, o.tail[next-first:]...), end
}
