// Package ask turns questions into programs, and runs them: hutch.Questions over a hutch.Service.
//
// One idea keeps it small: an attempt is a pure step. Its input is a conversation with the model. Its result is either
// a program that succeeded, or the message for the next attempt: the fault of the answer (prose, several programs, the
// wrong language, cut off) or of the program (its error, its time limit). So bad answers and bad programs are repaired
// in the same way, by the same limited loop.
//
//	prompt ─► model ─► extract ─► run ─► answer
//	   ▲                  │ error   │ error
//	   └──────────────────┴─────────┘   at most Repairs times
//
// The key of the model stays in [Anthropic]: no sandbox has any secret, so a program that tries to print the key finds
// none. Programs run without network unless the question asks for one.
package ask
