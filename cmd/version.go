package cmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

// releasesTimeout limits how long version --check waits for the page of the releases.
const releasesTimeout = 10 * time.Second

type versionOptions struct {
	env    *Env
	check  bool
	output string
}

func newVersionCmd(env *Env) *cobra.Command {
	o := versionOptions{env: env}
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of kcpctl, and the kcp releases that it supports",
		Long: `Print the version of kcpctl, and the kcp releases that it supports.

With --check, it also prints the newest release of kcpctl, for which it sends one request to
` + version.Releases + `. The request says nothing about this kcpctl. The exit code is 1 if
there is a newer release. No other command looks for releases.`,
		Example: `  kcpctl version
  kcpctl version -o jsonpath='{.version}'
  kcpctl version --check`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	c.Flags().BoolVar(&o.check, "check", false, "look for a newer release of kcpctl")
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

func (o *versionOptions) run(ctx context.Context) error {
	i := version.Get()
	i.KCP = release.Default
	i.KnownKCP = []string{release.Oldest + " to " +
		release.Newest}
	i.Etcd = setup.EtcdImage
	i.Image = topology.KcpctlRef(setup.KcpctlImage(&v1alpha1.Spec{}))
	if o.check {
		var err error
		if i.Newest, err = o.newest(ctx); err != nil {
			return err
		}
	}
	if o.output != "" {
		if err := encode(o.env.Streams.Out, o.output, i); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(o.env.Streams.Out, i.Text()); err != nil {
		return err
	}
	if o.check {
		return o.compare(i)
	}
	return nil
}

func (o *versionOptions) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, releasesTimeout)
	defer cancel()
	newest, err := version.Newest(ctx, cmp.Or(o.env.Releases, version.Releases))
	if err != nil {
		return "", clierr.New(clierr.Unknown,
			"check the network, or set HTTPS_PROXY; without --check, kcpctl version needs no network",
			"look for the newest release of kcpctl: %w", err)
	}
	return newest, nil
}

// compare reports whether the newest release is newer than this kcpctl, with its exit code.
func (o *versionOptions) compare(i version.Info) error {
	older, known := i.IsOlder(i.Newest)
	if !known {
		return clierr.New(clierr.Unknown, "",
			"kcpctl %s is not a release, and cannot be compared with %s", i.Version, i.Newest)
	}
	if !older {
		return nil
	}
	_, err := fmt.Fprintf(o.env.Streams.Err, "a newer release is available: %s/tag/%s\n", version.Releases, i.Newest)
	if err != nil {
		return err
	}
	return silent(clierr.Failed)
}
