package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"hutch"
)

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{"": "python", "PY": "python", "node": "javascript", "ts": "typescript", "sh": "bash"} {
		if k, err := Lookup(name); err != nil || k.Language != want {
			t.Errorf("%q: %s, %v", name, k.Language, err)
		}
	}
	if _, err := Lookup("cobol"); !errors.Is(err, hutch.Invalid) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"result":{"main":true,"data":{"text/plain":"1","image/png":"aGk=","application/json":{"a":[1]}}}}`,
		`{"error":{"name":"E","message":"m","traceback":"t"}}`,
		`{"result":{"data":{"":null}}}`, `{"result":{},"error":{}}`, `[`, `null`, `{"result":{"data":{"text/plain":1}}}`,
		"{\"error\":{\"name\":\"\xff\"}}", `{"input":{"prompt":"name? ","password":true}}`, `{"input":{},"error":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := Parse(message)
		if err != nil {
			return
		}
		kinds := 0
		for _, is := range []bool{e.Result != nil, e.Error != nil, e.Input != nil} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Fatalf("%+v", e)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Fatal(err)
		}
		if e.Input != nil && len(e.Input.Prompt) > maxAsked+10 || e.Error != nil && len(e.Error.Name)+len(e.Error.Message)+len(e.Error.Traceback) > maxName+2*maxText+10 {
			t.Fatal("not bounded")
		}
	})
}

func TestShellInputIsTwoCommands(t *testing.T) {
	k, err := Lookup("bash")
	if err != nil {
		t.Fatal(err)
	}
	run, err := k.Run(Code{ID: "ID", Text: "echo 'it'", Env: map[string]string{"A": "b'c"}, Dir: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	want := `__hutch_lend 'A=b'\''c'; builtin cd -- '/tmp' && { __hutch_status; builtin eval 'echo '\''it'\''' </dev/null; }` + "\n__hutch_end ID\n"
	if run.Input != want {
		t.Errorf("%s", run.Input)
	}
	long, err := k.Run(Code{ID: "ID", Text: strings.Repeat("x", longCode+1)})
	if err != nil || len(long.Input) > 200 || long.Source == "" {
		t.Errorf("%q, %v", long.Input, err)
	}
}

// TestFormsThatExplode: code in a sandbox can write a message with half a million MIME types. Decoding it before counting
// them would need thirty times the memory of the message.
func TestFormsThatExplode(t *testing.T) {
	var message strings.Builder
	message.WriteString(`{"result":{"data":{`)
	for i := range 500_000 {
		fmt.Fprintf(&message, `"%x/x":0,`, i)
	}
	message.WriteString(`"text/plain":"x"}}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e, err := Parse([]byte(message.String()))
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err == nil || used > 32<<20 {
		t.Errorf("%v after %d MiB for %d MiB", e.Result != nil, used>>20, message.Len()>>20)
	}
	for text, ok := range map[string]bool{
		`{"result":{"main":true,"data":{"text/plain":"x","application/json":{"a":[1,{}]}}}}`: true,
		`{"result":{"data":null}}`: false, `{"result":{}}`: false, `{"result":{"data":[]}}`: false, `{"result":{"data":{"text/plain":1}}}`: false,
	} {
		if e, err := Parse([]byte(text)); (err == nil) != ok || ok && (!e.Result.Main || string(e.Result.Data["application/json"]) != `{"a":[1,{}]}`) {
			t.Errorf("%s: %+v, %v", text, e.Result, err)
		}
	}
}
