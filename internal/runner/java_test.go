package runner

import "testing"

func TestJavaNames(t *testing.T) {
	for source, want := range map[string][2]string{
		"class A { public static void main(String[] a) {} }":                                                        {"A.java", "A"},
		"class A {} public class B { public static void main(String[] a) {} }":                                      {"B.java", "B"},
		"public class A {} final class B { static int x() { return 1; } public static void main (String... a) {} }": {"A.java", "B"},
		"package a.b; import x.record.Y; // class C {\n/* class D { */ class E { String s = \"class F { main(\"; }": {"E.java", "a.b.E"},
		"@X(B.class) record P(int x) { } enum Q { R } interface S { }":                                              {"P.java", "P"},
		"class A { class B { void main() {} } } class C { void main() {} }":                                         {"A.java", "C"},
		"class Ä { char c = '{'; String t = \"\"\"\n { class \"\"\"; } class B { void main() {} }":                  {"Ä.java", "B"},
		"this is\nno program": {"Main.java", "Main"},
		"":                    {"Main.java", "Main"},
		"}}}} class":          {"Main.java", "Main"},
	} {
		if file, class := javaNames(source); [2]string{file, class} != want {
			t.Errorf("%s: %s, %s; want %s", source, file, class, want)
		}
	}
}

func TestJavaRunsTheClassWithMain(t *testing.T) {
	l, _ := Lookup("java")
	need(t, l)
	got := run(t, l, "class Helper { int x = 3; }\npublic class App { public static void main(String[] a) { System.exit(new Helper().x); } }", "")
	if got.code != 3 || got.compile {
		t.Errorf("got %+v", got)
	}
}
