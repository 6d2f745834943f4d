package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/setup"
)

func newConfigCmd(g *globalOptions) *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at the setup file", Args: noArgs}
	o := &setupOptions{globalOptions: g}
	view := &cobra.Command{
		Use:   "view",
		Short: "Print the setup with all its defaults",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := o.load()
			if err != nil {
				return err
			}
			out, err := setup.Marshal(s.File.Setup)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(g.Streams.Out, string(out))
			return err
		},
	}
	o.addFlags(view.Flags())
	c.AddCommand(view)
	return c
}
