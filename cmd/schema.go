package cmd

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/docs"
)

func newSchemaCmd(env *Env) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the setup file, or of what commands print with -o json",
		Long: `Schema prints the JSON schema of the setup file, for editors. With --output it prints the schema of what a
command prints with -o json. Later releases add fields to these outputs, and remove or rename none.`,
		Example: `  kcpctl schema > kcp.schema.json
  kcpctl schema --output status`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			text := docs.Schema()
			if output != "" {
				var ok bool
				if text, ok = docs.OutputSchema(output); !ok {
					return unknownName("output", output, outputNames())
				}
			}
			_, err := io.WriteString(env.Streams.Out, text)
			return err
		},
	}
	c.Flags().StringVar(&output, "output", "", "print the schema of an output instead: "+either(outputNames()))
	completeFlag(c, "output", fixed(outputNames()...))
	return c
}
