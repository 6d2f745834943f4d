package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

func newVersionCmd(env *Env) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of kcpctl, and the kcp releases that it supports",
		Example: `  kcpctl version
  kcpctl version -o jsonpath='{.version}'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			i := version.Get()
			i.KCP = release.Default
			i.KnownKCP = []string{release.Oldest + " to " +
				release.Newest}
			i.Etcd = setup.EtcdImage
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
