package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/version"
)

func newVersionCmd(g *globalOptions) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print which kcpctl this is, and which kcp it brings up",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			i := version.Get()
			i.KCP, i.KnownKCP, i.Etcd = release.Default, []string{release.Oldest + " to " + release.Newest}, setup.EtcdImage
			if output != "" {
				return encode(g.Streams.Out, output, i)
			}
			_, err := fmt.Fprint(g.Streams.Out, i.Text())
			return err
		},
	}
	addOutput(c, &output, "", forPrograms()...)
	return c
}
