package main

import (
	"context"

	"github.com/spf13/cobra"

	"hutch/client"
)

func newConversationList(h *home, std streams) *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the conversations that a server keeps",
		Long: "List the conversations that a server keeps, yours by name, with the sizes of their files.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Conversations(ctx, all)
			if err != nil {
				return err
			}
			head, owner := "CONVERSATION\tSIZE\tMODIFIED", func(client.Conversation) []any { return nil }
			if all {
				head, owner = "OWNER\t"+head, func(k client.Conversation) []any { return []any{dash(k.Owner)} }
			}
			return writeList(std.out, asJSON, list, head, func(k client.Conversation) []any {
				return append(owner(k), k.Name, size(k.Bytes), when(&k.Modified, "-"))
			})
		}),
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "those of every owner; needs a token with the scope admin")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newConversationRemove(h *home, std streams) *cobra.Command {
	var asJSON bool
	names := func(ctx context.Context, svc *client.Client) (names []string, err error) {
		list, err := svc.Conversations(ctx, false)
		for _, k := range list {
			names = append(names, k.Name)
		}
		return names, err
	}
	c := &cobra.Command{
		Use: "rm CONVERSATION...", Aliases: []string{"delete"}, Short: "Delete conversations that a server keeps",
		Long: "Delete conversations that a server keeps, with their files, sandboxes and links.\n" + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{"conversation", names, (*client.Client).DeleteConversation}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
