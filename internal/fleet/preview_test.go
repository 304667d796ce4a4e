package fleet

import (
	"context"
	"fmt"
	"testing"

	"hutch"
)

// TestRememberedPreviewsOfManyLabels: if an owner has more labels than a node remembers, the node forgets labels of
// this owner, and not those of others.
func TestRememberedPreviewsOfManyLabels(t *testing.T) {
	t.Parallel()
	p := newPreviews()
	keep := func(owner, label string) context.Context {
		life, end := context.WithCancel(t.Context())
		p.keep(label, remembered{hutch.Preview{Owner: owner, Life: life}, end})
		return life
	}
	early := keep("other", "early")
	for i := range mostShown + 100 {
		keep("hog", fmt.Sprint("hog-", i))
	}
	late := keep("another", "late")
	for i := range 100 {
		keep("hog", fmt.Sprint("hog-more-", i))
	}
	if early.Err() != nil || late.Err() != nil || p.shown["early"].Life != early || p.shown["late"].Life != late {
		t.Error("an owner lost a preview because of another one's")
	}
	if len(p.shown) != mostShown || p.counts["hog"] != mostShown-2 {
		t.Errorf("%d are remembered, %d of them of the owner with most", len(p.shown), p.counts["hog"])
	}
	for label, preview := range p.shown {
		if preview.Life.Err() != nil {
			t.Errorf("%s is remembered, and has ended", label)
		}
		p.forget(label, preview.Life)
	}
	if len(p.shown) != 0 || len(p.counts) != 0 {
		t.Errorf("left %v, %v", p.shown, p.counts)
	}
}
