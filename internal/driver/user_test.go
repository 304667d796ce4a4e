package driver_test

import (
	"errors"
	"slices"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// Only the agent can have the agent's id. An image whose user has that id is refused, and a group with that id is left
// out.
func TestSetAnyUser(t *testing.T) {
	t.Parallel()
	var boot wire.Boot
	user := image.Account{UID: 5, GID: 6, Groups: []int{7, wire.AgentID, wire.AgentID + 1, 8}}
	if err := driver.SetAnyUser(&boot, image.Root{User: &user}); err != nil || boot.UID != 5 || boot.GID != 6 || !slices.Equal(boot.Groups, []int{7, 8}) {
		t.Errorf("%d:%d, %v, %v", boot.UID, boot.GID, boot.Groups, err)
	}
	if len(user.Groups) != 4 || user.Groups[1] != wire.AgentID {
		t.Errorf("the image's own list became %v", user.Groups)
	}
	for _, user := range []image.Account{{UID: wire.AgentID}, {UID: 5, GID: wire.AgentID}, {UID: -1}} {
		if err := driver.SetAnyUser(&boot, image.Root{User: &user}); !errors.Is(err, hutch.Unsupported) {
			t.Errorf("%+v: %v", user, err)
		}
	}
}
