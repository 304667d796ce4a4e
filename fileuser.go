package hutch

import "context"

type fileUserKey struct{}

// AsUser returns a context for verbs on files. With it, they have the rights of a user of the sandbox, named as in
// CreateRequest.User, and create files that belong to this user. Without it, or with an empty user, they have the
// rights of the sandbox's user. Other verbs ignore it; those that run a program have a field for the user.
//
// The user says who acts, not what a verb does. So it is in the context, as the caller is, and not in each request.
func AsUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, fileUserKey{}, user)
}

// FileUser returns the user of AsUser; empty for the sandbox's user.
func FileUser(ctx context.Context) string {
	user, _ := ctx.Value(fileUserKey{}).(string)
	return user
}

// CheckUser checks a user that a request can leave out: a name or UID, or one of them with :GROUP.
func CheckUser(user string) error { return checkOptionalUser(user) }
