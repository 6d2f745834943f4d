package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func newConfigCmd(env *Env) *cobra.Command {
	return newGroup("config", "Inspect the setup file",
		newConfigViewCmd(env), newConfigImagesCmd(env))
}

func newConfigImagesCmd(env *Env) *cobra.Command {
	var flags setupFlags
	c := &cobra.Command{
		Use:   "images",
		Short: "Print the images that the setup uses",
		Long: `Print the images of all pods of the setup, one per line, to copy them to your registry.
The image of kcpctl itself is one of them: kcpctl restore and scheduled backups use it.`,
		Example: "  kcpctl config images | xargs -n 1 docker pull",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := loadSetup(env, &flags)
			if err != nil {
				return err
			}
			images, err := render.Images(s.topology)
			if err != nil {
				return err
			}
			images = append(images, topology.KcpctlRef(setup.KcpctlImage(&s.file.Setup.Spec)))
			slices.Sort(images)
			_, err = fmt.Fprintln(env.Streams.Out, strings.Join(slices.Compact(images), "\n"))
			return err
		},
	}
	flags.add(c.Flags())
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
