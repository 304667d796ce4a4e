package runner

import "hutch/internal/wire"

// languages is the table of languages, by name. A compiler runs in the working directory of the program.
var languages = []Language{
	{
		Name: "bash", Aliases: []string{"sh", "shell"}, Suffix: ".sh",
		Programs: []string{"bash"}, Package: "bash", version: "--version",
		run: []string{"bash", wire.SourceArg},
	},
	{
		Name: "c", Suffix: ".c",
		Programs: []string{"cc"}, Package: "gcc", version: "--version",
		compile: []string{"cc", "-O1", "-iquote", ".", "-o", wire.ProgramArg, wire.SourceArg, "-lm", "-pthread"},
	},
	{
		Name: "c++", Aliases: []string{"cpp", "cxx", "cc"}, Suffix: ".cpp",
		Programs: []string{"c++"}, Package: "g++", version: "--version",
		compile: []string{"c++", "-O1", "-iquote", ".", "-o", wire.ProgramArg, wire.SourceArg, "-pthread"},
	},
	{
		Name: "go", Aliases: []string{"golang"}, Suffix: ".go",
		Programs: []string{"go"}, Package: "golang-go", version: "version",
		compile: []string{"go", "build", "-o", wire.ProgramArg, wire.SourceArg},
	},
	{
		// Java's launcher would compile in memory and be faster, but does not report whether the compiler or the
		// program failed.
		Name: "java", Suffix: ".java",
		Programs: []string{"java", "javac"}, Package: "default-jdk-headless", version: "-version",
		compile: []string{"javac", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-J-Xshare:auto", "-nowarn", "-proc:none", "-d", wire.ProgramArg, wire.SourceArg},
		run:     []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", wire.ProgramArg},
		names:   javaNames,
	},
	{
		Name: "javascript", Aliases: []string{"js", "node", "nodejs", "mjs"}, Suffix: ".js",
		Programs: []string{"node"}, Package: "nodejs", version: "--version",
		run: []string{"node", wire.SourceArg}, env: nodeEnv,
	},
	{
		Name: "perl", Aliases: []string{"pl"}, Suffix: ".pl",
		Programs: []string{"perl"}, Package: "perl", version: "-e 'print $^V'",
		run: []string{"perl", wire.SourceArg},
	},
	{
		Name: "php", Suffix: ".php",
		Programs: []string{"php"}, Package: "php-cli", version: "--version",
		run: []string{"php", wire.SourceArg},
	},
	{
		Name: "python", Aliases: []string{"py", "python3"}, Suffix: ".py",
		Programs: []string{"python3"}, Package: "python3", version: "--version",
		run: []string{"python3", wire.SourceArg},
		// Without this, "python3 FILE" finds the modules next to the file, but not those in the working directory.
		env: []string{"PYTHONPATH=."},
	},
	{
		Name: "r", Aliases: []string{"rscript"}, Suffix: ".R",
		Programs: []string{"Rscript"}, Package: "r-base-core", version: "--version",
		run: []string{"Rscript", wire.SourceArg},
	},
	{
		Name: "ruby", Aliases: []string{"rb"}, Suffix: ".rb",
		Programs: []string{"ruby"}, Package: "ruby", version: "--version",
		run: []string{"ruby", "-I", ".", wire.SourceArg},
	},
	{
		Name: "rust", Aliases: []string{"rs"}, Suffix: ".rs",
		Programs: []string{"rustc"}, Package: "rustc", version: "--version",
		compile: []string{"rustc", "--edition", "2021", "--crate-name", "main", "-o", wire.ProgramArg, wire.SourceArg},
	},
	{
		Name: "typescript", Aliases: []string{"ts"}, Suffix: ".ts",
		Programs: []string{"node"}, Package: "nodejs", version: "--version",
		run: []string{"node", "--enable-source-maps", wire.SourceArg}, env: nodeEnv,
		convert: stripTypes,
	},
}

// nodeEnv makes require find packages in the working directory, too: Node looks only next to the file.
var nodeEnv = []string{"NODE_PATH=node_modules"}
