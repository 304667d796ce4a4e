package store

import (
	"encoding/json"
	"testing"
)

// TestRecordsOfEarlierServers reads a record with the names that are in existing stores.
func TestRecordsOfEarlierServers(t *testing.T) {
	var r Record
	if err := json.Unmarshal([]byte(`{"place":"o-1","seat":"w-1","lent":["KEY"],"books":{"processes":[{"processId":"p-1"}]}}`), &r); err != nil {
		t.Fatal(err)
	}
	if r.Key != "o-1" || r.InstanceID != "w-1" || len(r.RequestedSecrets) != 1 || r.Listing == nil || len(r.Listing.Processes) != 1 {
		t.Errorf("read %+v", r)
	}
}
