package cmd

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/docs"
)

func newSchemaCmd(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of the setup file, for editors",
		Example: "  kcpctl schema > kcp.schema.json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(env.Streams.Out, docs.Schema())
			return err
		},
	}
}
