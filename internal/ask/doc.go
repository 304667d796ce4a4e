// Package ask turns questions into programs, and runs them: hutch.Questions over a hutch.Service.
//
// One idea makes it small: an attempt is a pure step. An attempt takes a conversation with the model, and gives either a
// program that succeeded, or the message that makes the next attempt: what was wrong with the answer (prose, several
// programs, the wrong language, cut off) or with the program (its error, its time limit). So bad answers and bad programs
// are repaired in the same way, by the same bounded loop.
//
//	prompt ─► model ─► extract ─► run ─► answer
//	   ▲                  │ error   │ error
//	   └──────────────────┴─────────┘   at most Repairs times
//
// The key of the model stays in [Anthropic]: no sandbox is given any secret, so a program that is told to print the key
// finds none. Programs run without network unless the question asks for one.
package ask
