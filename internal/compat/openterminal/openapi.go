package openterminal

import (
	"encoding/json"
	"strings"
)

// parameter is a parameter of a tool: of its query, or a field of its body.
type parameter struct {
	name, kind, about string
	required          bool
}

// tool is an operation that models call. The names are those that Open WebUI and its models know.
type tool struct {
	id, route, about string
	query, body      []parameter
}

var tools = []tool{
	{"run_command", "POST /execute", "Run a bash command in the background in the user's own sandbox, and return its id. With wait, the output so far is returned too.", []parameter{
		{"wait", "number", "Seconds to wait for the end of the command, at most 300.", false}, {"tail", "integer", "Return only the last entries of the output.", false},
	}, []parameter{
		{"command", "string", "The command line, with pipes and redirections.", true}, {"cwd", "string", "The folder to run it in.", false}, {"env", "object", "Further environment variables.", false},
	}},
	{"get_process_status", "GET /execute/{process_id}/status", "Return the state of a command, its exit code, and its output from an offset on.", []parameter{
		{"wait", "number", "Seconds to wait for the end of the command, at most 300.", false}, {"offset", "integer", "The next_offset of the answer before, for new output only.", false},
		{"tail", "integer", "Return only the last entries of the output.", false},
	}, nil},
	{"send_process_input", "POST /execute/{process_id}/input", "Write text to the input of a running command. Write line feeds as \\n, and Ctrl-C as \\x03.", nil, []parameter{{"input", "string", "The text.", true}}},
	{"kill_process", "DELETE /execute/{process_id}", "End a running command.", []parameter{{"force", "boolean", "Kill it at once.", false}}, nil},
	{"list_processes", "GET /execute", "List the commands that run or have ended.", nil, nil},
	{"list_files", "GET /files/list", "List a folder.", []parameter{{"directory", "string", "The folder; default the working folder.", false}}, nil},
	{"read_file", "GET /files/read", "Read a text file, or lines of it, or an image.", []parameter{
		{"path", "string", "The file.", true}, {"start_line", "integer", "The first line, from 1.", false}, {"end_line", "integer", "The last line.", false},
	}, nil},
	{"display_file", "GET /files/display", "Show a file to the user. It returns no content: use read_file for that.", []parameter{{"path", "string", "The file.", true}}, nil},
	{"write_file", "POST /files/write", "Write a text file. Folders above it are made, and an existing file is replaced.", nil, []parameter{{"path", "string", "The file.", true}, {"content", "string", "The text.", true}}},
	{"replace_file_content", "POST /files/replace", "Replace exact texts in a file, all of them or none.", nil, []parameter{
		{"path", "string", "The file.", true}, {"replacements", "array", "Objects with target, replacement, and perhaps start_line, end_line and allow_multiple.", true},
	}},
	{"grep_search", "GET /files/grep", "Search files for a text or a regular expression (RE2).", []parameter{
		{"query", "string", "What to search for.", true}, {"path", "string", "The folder to search in; default the working folder.", false}, {"regex", "boolean", "The query is a regular expression; default true.", false},
		{"case_insensitive", "boolean", "Upper and lower case are the same.", false}, {"include", "array", "Patterns of names of files, such as *.py.", false},
		{"match_per_line", "boolean", "Return lines and not only files; default true.", false}, {"max_results", "integer", "The most results, 1 to 500; default 50.", false},
	}, nil},
	{"glob_search", "GET /files/glob", "Search files and folders by a pattern of their names.", []parameter{
		{"pattern", "string", "The pattern, such as *.py.", true}, {"path", "string", "The folder to search in; default the working folder.", false}, {"exclude", "array", "Patterns of names to leave out.", false},
		{"type", "string", "file, directory or any.", false}, {"max_results", "integer", "The most results, 1 to 500; default 50.", false},
	}, nil},
	{"search_files", "GET /files/search", "Search files and folders by a part of their names. Those that fit best come first.", []parameter{
		{"query", "string", "A part of the name.", false}, {"path", "string", "The folder to search in; default the working folder.", false}, {"limit", "integer", "The most results, 1 to 100; default 20.", false},
		{"type", "string", "file, directory or any.", false}, {"show_hidden", "boolean", "Also files and folders whose names begin with a dot.", false},
	}, nil},
	{"match_files", "GET /files/matches", "Search files and folders by a text in their names, paths and content. Those that fit best come first.", []parameter{
		{"query", "string", "The text.", true}, {"path", "string", "The folder to search in; default the working folder.", false}, {"show_hidden", "boolean", "Also files and folders whose names begin with a dot.", false},
		{"offset", "integer", "The next_offset of the answer before, for further results.", false}, {"limit", "integer", "The most results, 1 to 100; default 100.", false},
	}, nil},
	{"read_user_terminal", "GET /api/terminals/user/output", "Read the newest output of the terminal that the user has open. Read it before you type: a program may be running there. This opens no terminal.", nil, nil},
	{"send_user_terminal_input", "POST /api/terminals/user/input", "Type a text into the terminal that the user has open, as it is. End a command with a line feed. This waits for no command, and opens no terminal.", nil, []parameter{
		{"input", "string", "The text.", true},
	}},
}

// document describes the tools to models.
var document = describe()

type object = map[string]any

func describe() []byte {
	paths := object{}
	for _, t := range tools {
		method, route, _ := strings.Cut(t.route, " ")
		if paths[route] == nil {
			paths[route] = object{}
		}
		paths[route].(object)[strings.ToLower(method)] = t.operation(route)
	}
	b, err := json.Marshal(object{
		"openapi": "3.1.0", "paths": paths,
		"info":       object{"title": "Open Terminal", "description": "A computer of the user's own: a sandbox that keeps its files.", "version": "0.14.5"},
		"components": object{"securitySchemes": object{"HTTPBearer": object{"type": "http", "scheme": "bearer"}}},
	})
	if err != nil {
		panic(err) // cannot happen: all values are texts
	}
	return b
}

func (t tool) operation(route string) object {
	var parameters []object
	if strings.Contains(route, "{process_id}") {
		parameters = append(parameters, object{"name": "process_id", "in": "path", "required": true, "description": "The id of the command.", "schema": object{"type": "string"}})
	}
	for _, p := range t.query {
		parameters = append(parameters, object{"name": p.name, "in": "query", "required": p.required, "description": p.about, "schema": p.schema()})
	}
	op := object{
		"operationId": t.id, "summary": t.about, "description": t.about, "security": []object{{"HTTPBearer": []string{}}},
		"responses": object{"200": object{"description": "Successful Response", "content": object{"application/json": object{"schema": object{}}}}},
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if t.body != nil {
		properties, required := object{}, []string{}
		for _, p := range t.body {
			s := p.schema()
			s["description"] = p.about
			properties[p.name] = s
			if p.required {
				required = append(required, p.name)
			}
		}
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": object{"type": "object", "properties": properties, "required": required}}}}
	}
	return op
}

func (p parameter) schema() object {
	switch {
	case p.name == "replacements":
		texts, line := object{"type": "string"}, object{"type": "integer", "minimum": 1}
		return object{"type": "array", "items": object{"type": "object", "required": []string{"target", "replacement"}, "properties": object{
			"target": texts, "replacement": texts, "start_line": line, "end_line": line, "allow_multiple": object{"type": "boolean"},
		}}}
	case p.kind == "array":
		return object{"type": "array", "items": object{"type": "string"}}
	case p.kind == "object":
		return object{"type": "object", "additionalProperties": object{"type": "string"}}
	}
	return object{"type": p.kind}
}
