package runner

import "hutch/internal/wire"

// languages is the table of languages, by name. A compile command has the
// source in $src and leaves an executable at $out; the working directory is
// the one that the program will run in.
var languages = []Language{
	{
		Name: "bash", Aliases: []string{"sh", "shell"}, Suffix: ".sh",
		Programs: []string{"bash"}, run: []string{"bash", wire.SourceArg},
	},
	{
		Name: "c", Suffix: ".c",
		Programs: []string{"cc"}, compile: `cc -O1 -iquote . -o "$out" "$src" -lm -pthread`,
	},
	{
		Name: "c++", Aliases: []string{"cpp", "cxx", "cc"}, Suffix: ".cpp",
		Programs: []string{"c++"}, compile: `c++ -O1 -iquote . -o "$out" "$src" -pthread`,
	},
	{
		Name: "go", Aliases: []string{"golang"}, Suffix: ".go",
		Programs: []string{"go"}, compile: `go build -o "$out" "$src"`,
	},
	{
		// The launcher compiles in memory: one virtual machine, not two. The
		// class with main must be the first.
		Name: "java", Suffix: ".java",
		Programs: []string{"java"}, run: []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", wire.SourceArg},
	},
	{
		Name: "javascript", Aliases: []string{"js", "node", "nodejs", "mjs"}, Suffix: ".js",
		Programs: []string{"node"}, run: []string{"node", wire.SourceArg}, env: nodeEnv,
	},
	{
		Name: "perl", Aliases: []string{"pl"}, Suffix: ".pl",
		Programs: []string{"perl"}, run: []string{"perl", wire.SourceArg},
	},
	{
		Name: "php", Suffix: ".php",
		Programs: []string{"php"}, run: []string{"php", wire.SourceArg},
	},
	{
		Name: "python", Aliases: []string{"py", "python3"}, Suffix: ".py",
		Programs: []string{"python3"}, run: []string{"python3", wire.SourceArg},
		// The modules of the working directory, which "python3 FILE" looks for
		// beside the file.
		env: []string{"PYTHONPATH=."},
	},
	{
		Name: "r", Aliases: []string{"rscript"}, Suffix: ".R",
		Programs: []string{"Rscript"}, run: []string{"Rscript", wire.SourceArg},
	},
	{
		Name: "ruby", Aliases: []string{"rb"}, Suffix: ".rb",
		Programs: []string{"ruby"}, run: []string{"ruby", "-I", ".", wire.SourceArg},
	},
	{
		Name: "rust", Aliases: []string{"rs"}, Suffix: ".rs",
		Programs: []string{"rustc"}, compile: `rustc --edition 2021 --crate-name main -o "$out" "$src"`,
	},
	{
		Name: "typescript", Aliases: []string{"ts"}, Suffix: ".ts",
		Programs: []string{"node"}, run: []string{"node", "--enable-source-maps", wire.SourceArg}, env: nodeEnv,
		convert: stripTypes,
	},
}

// nodeEnv lets require find the packages of the working directory, which Node
// looks for beside the file.
var nodeEnv = []string{"NODE_PATH=node_modules"}
