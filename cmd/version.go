package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/version"
)

func newVersionCmd(env *Env) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of kcpctl, and the kcp releases that it supports",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			i := version.Get()
			i.KCP, i.KnownKCP, i.Etcd = release.Default, []string{release.Oldest + " to " + release.Newest}, setup.EtcdImage
			if output != "" {
				return encode(env.Streams.Out, output, i)
			}
			_, err := fmt.Fprint(env.Streams.Out, i.Text())
			return err
		},
	}
	addOutput(c, &output, "", machineFormats...)
	return c
}
