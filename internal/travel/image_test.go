package travel

import (
	"encoding/json"
	"testing"
)

// TestImagesOfEarlierServers reads an image with the names that are in stored records.
func TestImagesOfEarlierServers(t *testing.T) {
	var img Image
	if err := json.Unmarshal([]byte(`{"key":"k","sha256":"s","size":7,"place":"o-1","needs":{"runtime":"gvisor","build":"b"}}`), &img); err != nil {
		t.Fatal(err)
	}
	if img.Key != "k" || img.SHA256 != "s" || img.Size != 7 || img.RecordKey != "o-1" || img.Needs.Runtime != "gvisor" || img.Needs.Build != "b" {
		t.Errorf("read %+v", img)
	}
}
