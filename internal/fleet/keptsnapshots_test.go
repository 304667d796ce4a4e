package fleet

import (
	"testing"

	"hutch/internal/travel"
)

// TestBadImage: a snapshot whose image was found bad is written again, even if its names change before that.
func TestBadImage(t *testing.T) {
	t.Parallel()
	k := keptSnapshots{all: map[string]keptSnapshot{}, old: map[string]bool{}, failed: map[string]failure{}}
	bad := &travel.Image{Key: "bad"}
	k.set("snap", keptSnapshot{owner: "ada", image: bad})
	if k.due("snap") {
		t.Error("a snapshot that is in the bucket is written again")
	}
	k.setImage("snap", nil)
	k.set("snap", keptSnapshot{owner: "ada", image: bad}) // the directory has the new name, but still the old image
	if s, _ := k.find("snap"); !k.due("snap") || s.old != "bad" {
		t.Errorf("the bad image counts: %+v", s)
	}
	k.setImage("snap", &travel.Image{Key: "good"})
	if s, _ := k.find("snap"); k.due("snap") || s.old != "" {
		t.Errorf("after it was written again: %+v", s)
	}
}
