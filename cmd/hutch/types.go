package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newTypes(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "types", Short: "List the instance types: sizes of sandboxes that have names",
		Long: `List the instance types: cores, memory and disk that --type gives a new sandbox.
A limit that a flag sets, such as --memory, wins over the type's.
` + remoteHelp,
		Example: `  hutch create --type basic web
  hutch create --type basic --memory 2048 big`,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.InstanceTypes(ctx)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "TYPE\tCORES\tMEMORY\tDISK", func(t hutch.InstanceType) []any {
				return []any{t.Name, t.CPU, fmt.Sprintf("%d MiB", t.Memory), fmt.Sprintf("%d MiB", t.Disk)}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// parseTypes returns the default instance types and those of --instance-type.
func parseTypes(texts map[string]string) ([]hutch.InstanceType, error) {
	var own []hutch.InstanceType
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		t, err := hutch.ParseInstanceType(name, texts[name])
		if err != nil {
			return nil, usageError{fmt.Errorf("--instance-type: %w", err)}
		}
		own = append(own, t)
	}
	list, err := hutch.AddInstanceTypes(hutch.InstanceTypes, own)
	if err != nil {
		return nil, usageError{fmt.Errorf("--instance-type: %w", err)}
	}
	return list, nil
}
