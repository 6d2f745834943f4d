package cmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// offer is what is offered to who presses Tab. It asks no network.
type offer func(*cobra.Command) []string

// these offers the same to everybody.
func these(values ...string) offer { return func(*cobra.Command) []string { return values } }

// completeArgs makes a completion of arguments: those of the offer that were not typed yet, and nothing once there are as
// many as the command takes; 0 is any number.
func completeArgs(most int, o offer) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		left := slices.DeleteFunc(slices.Clone(o(c)), func(v string) bool { return slices.Contains(args, v) })
		return left, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag gives the values of a flag a completion. Those that end in = are only begun.
func completeFlag(c *cobra.Command, flag string, o offer) {
	// It fails only where there is no such flag, or where it is called twice.
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		all, directive := o(c), cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(all, func(v string) bool { return strings.HasSuffix(v, "=") }) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return all, directive
	})
}

// fromFile offers names of the setup file, which may be named by the environment as when the command runs. A file that does
// not load offers nothing: the command itself says what is wrong.
func (o *setupOptions) fromFile(names func(*setup.File, *topology.Topology) []string) offer {
	return func(c *cobra.Command) []string {
		if o.fromEnvironment(c) != nil || o.file == setup.Stdin {
			return nil
		}
		f, err := setup.Load(o.file, nil)
		if err != nil {
			return nil
		}
		return names(f, topology.Build(f.Setup))
	}
}

// theComponents are those that run.
func theComponents(_ *setup.File, t *topology.Topology) []string {
	return idsOf(t, topology.Etcd, topology.CacheServer, topology.RootShard, topology.Shard, topology.VirtualWorkspaces, topology.FrontProxy)
}

// theTargets are the components that a kubeconfig can lead to.
func theTargets(_ *setup.File, t *topology.Topology) []string {
	return idsOf(t, topology.FrontProxy, topology.RootShard, topology.Shard)
}

func idsOf(t *topology.Topology, kinds ...topology.Kind) []string {
	var out []string
	for _, c := range t.OfKind(kinds...) {
		out = append(out, string(c.ID()))
	}
	return out
}

// allShards are the names that shards have in kcp.
func allShards(_ *setup.File, t *topology.Topology) []string {
	var out []string
	for _, c := range t.Shards() {
		out = append(out, c.ShardName())
	}
	return out
}

// otherShards are those that can be removed.
func otherShards(_ *setup.File, t *topology.Topology) []string {
	return namesOf(t.OfKind(topology.Shard))
}

func theKubeconfigs(_ *setup.File, t *topology.Topology) []string {
	return namesOf(t.OfKind(topology.Kubeconfig))
}

func theClusters(f *setup.File, _ *topology.Topology) []string {
	var out []string
	for _, c := range f.Setup.Spec.Clusters {
		out = append(out, c.Name)
	}
	return out
}

func namesOf(all []*topology.Component) []string {
	var out []string
	for _, c := range all {
		out = append(out, c.Name)
	}
	return out
}

// theCertificates are the components that have certificates, and the certificates.
func theCertificates(_ *setup.File, t *topology.Topology) []string {
	var users, names []string
	for _, c := range pki.Table(t) {
		if id := string(c.Component); !slices.Contains(users, id) {
			users = append(users, id)
		}
		names = append(names, c.Secret)
	}
	return append(users, names...)
}

// nextReleases are those that the setup can be upgraded to.
func nextReleases(f *setup.File, _ *topology.Topology) []string {
	from := f.Setup.Spec.Version
	return slices.DeleteFunc(release.Known(), func(to string) bool {
		step, err := release.StepTo(from, to)
		return err != nil || step.Refused != "" || to == from
	})
}
