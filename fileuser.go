package hutch

import "context"

type fileUserKey struct{}

// AsUser returns a context whose verbs on files have the rights of a user of the sandbox, and create files that belong
// to that user: a name or number, as in CreateRequest.User. Without it, or with an empty user, they have the rights of
// the sandbox's user. Other verbs ignore it: verbs that run a program have a field for their user.
//
// Like the caller of a verb, its user is not part of what the verb does. So it is in the context, for all verbs on
// files.
func AsUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, fileUserKey{}, user)
}

// FileUser returns the user of AsUser; empty for the sandbox's.
func FileUser(ctx context.Context) string {
	user, _ := ctx.Value(fileUserKey{}).(string)
	return user
}

// CheckUser checks a user that a request can leave out: a name or UID, or one of them with :GROUP.
func CheckUser(user string) error { return checkOptionalUser(user) }
