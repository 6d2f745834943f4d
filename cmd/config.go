package cmd

import (
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func newConfigCmd(env *Env) *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Inspect the setup file"}
	c.AddCommand(newConfigViewCmd(env))
	return c
}

func newConfigViewCmd(env *Env) *cobra.Command {
	var flags setupFlags
	c := &cobra.Command{
		Use:     "view",
		Short:   "Print the setup with all defaults",
		Example: "  kcpctl config view -f prod.yaml",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := loadSetup(env, &flags)
			if err != nil {
				return err
			}
			env.notes(s.file)
			text, err := setup.Marshal(s.file.Setup)
			if err != nil {
				return err
			}
			_, err = env.Streams.Out.Write(text)
			return err
		},
	}
	flags.add(c.Flags())
	return c
}
