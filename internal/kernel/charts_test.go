package kernel

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// drawCharts prints the data of figures that real matplotlib has drawn, one a
// line: its input is the source of the kernel up to where it begins to run.
const drawCharts = `
import sys
env = {"__file__": "kernel", "__name__": "kernel"}
exec(compile(sys.stdin.read().partition("channel = Channel()")[0], "kernel", "exec"), env)
import matplotlib; matplotlib.use("agg")
import datetime, numpy as np, matplotlib.pyplot as plt
env["remember_boxes"]()
def show(name):
    data = {}
    env["put"](data, "chart", env["chart"](plt.gcf()))
    print(json.dumps({"name": name, **data}, allow_nan=False))
    plt.close("all")
import json
plt.plot([1, float("nan"), float("inf")], label="a"); plt.xlabel("Time (s)"); plt.title("T"); show("line")
plt.plot([datetime.date(2020, 1, 1)], [1]); show("dates")
plt.scatter([1, 2], [3, 4], label="dots"); show("scatter")
plt.bar(["a", "b"], [1, 2], label="g"); show("bar")
for shift, name in (-.2, "m"), (.2, "n"): plt.bar([shift, 1 + shift], [3, 4], .4, label=name)
plt.xticks([0, 1], ["u", "v"]); show("groups")
plt.pie([1, 3], labels=["x", "y"]); show("pie")
plt.boxplot([[1, 2, 3, 4, 50]], labels=["p"]); show("box")
figure, axes = plt.subplots(1, 2); axes[0].plot([1]); axes[1].pie([1]); figure.suptitle("S"); show("several")
plt.plot(np.zeros(100000)); plt.title("x" * 10000); show("long")
for _ in range(300): plt.plot([1])
show("many")
plt.imshow([[1]]); show("image")
plt.figure(); show("empty")
class Evil(float):
    def item(self): raise RuntimeError
plt.plot([1]); plt.gca().lines[0].get_data = lambda orig: ([Evil(1)], [2]); show("raises")
`

func TestCharts(t *testing.T) {
	t.Parallel()
	python := "/usr/bin/python3" // Debian's, which has python3-matplotlib
	if err := exec.Command(python, "-c", "import matplotlib").Run(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("this machine has no python3-matplotlib")
		}
		t.Skip("needs python3-matplotlib")
	}
	cmd := exec.Command(python, "-W", "ignore", "-c", drawCharts)
	cmd.Stdin, cmd.Stderr = strings.NewReader(pythonSource), t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	charts := map[string]map[string]any{}
	for line := range strings.Lines(string(out)) {
		var c struct {
			Name  string
			Chart map[string]any
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		charts[c.Name] = c.Chart
	}
	for name, want := range map[string]string{
		"line":    `{"elements":[{"label":"a","points":[[0,1],[1,null],[2,null]]}],"title":"T","type":"line","x_label":"Time (s)","x_scale":"linear","x_unit":"s","y_label":null,"y_scale":"linear","y_unit":null}`,
		"dates":   `{"elements":[{"label":null,"points":[["2020-01-01",1]]}],"title":null,"type":"line","x_label":null,"x_scale":"datetime","x_unit":null,"y_label":null,"y_scale":"linear","y_unit":null}`,
		"scatter": `{"elements":[{"label":"dots","points":[[1,3],[2,4]]}],"title":null,"type":"scatter","x_label":null,"x_scale":"linear","x_unit":null,"y_label":null,"y_scale":"linear","y_unit":null}`,
		"bar":     `{"elements":[{"group":"g","label":"a","value":1},{"group":"g","label":"b","value":2}],"title":null,"type":"bar","x_label":null,"x_unit":null,"y_label":null,"y_unit":null}`,
		"groups":  `{"elements":[{"group":"m","label":"u","value":3},{"group":"m","label":"v","value":4},{"group":"n","label":"u","value":3},{"group":"n","label":"v","value":4}],"title":null,"type":"bar","x_label":null,"x_unit":null,"y_label":null,"y_unit":null}`,
		"pie":     `{"elements":[{"angle":90,"label":"x","radius":1},{"angle":270,"label":"y","radius":1}],"title":null,"type":"pie"}`,
		"box":     `{"elements":[{"first_quartile":2,"label":"p","max":4,"median":3,"min":1,"outliers":[50],"third_quartile":4}],"title":null,"type":"box_and_whisker","x_label":null,"x_unit":null,"y_label":null,"y_unit":null}`,
		"image":   `{"elements":[],"title":null,"type":"unknown"}`,
		"empty":   `null`,
		"raises":  `null`,
	} {
		for _, key := range []string{"x_ticks", "x_tick_labels", "y_ticks", "y_tick_labels"} {
			if _, ok := charts[name][key]; !ok && (charts[name]["type"] == "line" || charts[name]["type"] == "scatter") {
				t.Errorf("%s has no %s", name, key)
			}
			delete(charts[name], key)
		}
		if got, err := json.Marshal(charts[name]); string(got) != want || err != nil {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	several := charts["several"]
	if inner, ok := several["elements"].([]any); several["type"] != "superchart" || several["title"] != "S" || !ok || len(inner) != 2 {
		t.Errorf("several axes: %v", several)
	}
	long := charts["long"]["elements"].([]any)[0].(map[string]any)
	if n := len(long["points"].([]any)); n != 1000 || long["total"] != 100000.0 || len(charts["long"]["title"].(string)) > 210 {
		t.Errorf("a long line: %d points, %v", n, long["total"])
	}
	if n := len(charts["many"]["elements"].([]any)); n != 200 {
		t.Errorf("of 300 lines there are %d", n)
	}
}
