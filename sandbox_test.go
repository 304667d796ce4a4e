package hutch

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestSecondsAsPeopleWriteThem(t *testing.T) {
	for s, want := range map[Seconds]string{0: "0", 0.25: "0.25", 30: "30", 3.6e6: "3600000", -1: "-1"} {
		text, err := json.Marshal(s)
		if got := fmt.Sprint(s); got != want || string(text) != want || err != nil {
			t.Errorf("%s, in JSON %s, %v, not %s", got, text, err, want)
		}
	}
}
