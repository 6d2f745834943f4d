package cmd

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// completer returns the values that the shell completes. It uses no network, except for revisions and releases.
type completer func(*cobra.Command) []string

// fixed completes the same values everywhere.
func fixed(values ...string) completer { return func(*cobra.Command) []string { return values } }

// completeArgs completes arguments with the values that are not typed yet, up to the number of arguments that the
// command takes; 0 means any number.
func completeArgs(limit int, values completer) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		left := slices.DeleteFunc(slices.Clone(values(c)), func(v string) bool { return slices.Contains(args, v) })
		return left, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the values of a flag. After a value that ends in = the shell adds no space.
func completeFlag(c *cobra.Command, flag string, values completer) {
	// It fails only if there is no such flag, or if it is called twice.
	_ = c.RegisterFlagCompletionFunc(flag,
		func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			all, directive := values(c), cobra.ShellCompDirectiveNoFileComp
			if slices.ContainsFunc(all, func(v string) bool { return strings.HasSuffix(v, "=") }) {
				directive |= cobra.ShellCompDirectiveNoSpace
			}
			return all, directive
		})
}

// names completes names of the setup file, which may come from the environment as when the command runs. A file that
// cannot be loaded completes nothing: the command itself reports why.
func (f *setupFlags) names(env *Env, list func(*session) []string) completer {
	return func(c *cobra.Command) []string {
		if setFromSources(env, c) != nil || f.file == setup.Stdin {
			return nil
		}
		file, err := setup.Load(f.file, nil)
		if err != nil {
			return nil
		}
		s := &session{env: env, flags: f, reporter: &reporter{env: env}, directory: f.pkiDirectory(file)}
		if f.placeOnCluster(file) != nil || s.use(file) != nil {
			return nil
		}
		return list(s)
	}
}

// completionTimeout is how long the shell waits for values that a cluster has.
const completionTimeout = 3 * time.Second

// revisions are the numbers of the setups that were applied, the newest first, with the time of each.
func revisions(s *session) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	if s.connect(ctx) != nil {
		return nil
	}
	defer s.close()
	history, err := s.runtime.History(ctx)
	if err != nil {
		return nil
	}
	var out []string
	for _, r := range slices.Backward(history) {
		out = append(out, cobra.CompletionWithDesc(strconv.Itoa(r.Number), r.Time.UTC().Format(time.RFC3339)))
	}
	return out
}

func componentIDs(s *session) []string {
	return idsOf(s.topology.Running())
}

// selectableIDs are the components that --only can select: the components of status, and kubeconfigs.
func selectableIDs(s *session) []string {
	return idsOf(append(status.Shown(s.topology), s.topology.OfKind(topology.Kubeconfig)...))
}

// targetIDs are the components that a kubeconfig with a client certificate can target.
func targetIDs(s *session) []string {
	all := s.topology.OfKind(topology.FrontProxy, topology.RootShard, topology.Shard)
	return idsOf(slices.DeleteFunc(all, func(c *topology.Component) bool { return !c.AcceptsClientCertificates() }))
}

// loginIDs are the front-proxies that a kubeconfig without credentials can target.
func loginIDs(s *session) []string {
	return idsOf(slices.DeleteFunc(s.topology.FrontProxies(),
		func(c *topology.Component) bool { return !acceptsLogins(c) }))
}

func shardNames(s *session) []string {
	return mapped(s.topology.Shards(), func(c *topology.Component) string { return c.ShardName() })
}

// removableShards are all shards but the root shard.
func removableShards(s *session) []string { return namesOf(s.topology.OfKind(topology.Shard)) }

func kubeconfigNames(s *session) []string { return namesOf(s.topology.OfKind(topology.Kubeconfig)) }

// etcdNames are the names of the managed etcds: the names of their shards, or cache.
func etcdNames(s *session) []string { return namesOf(s.topology.OfKind(topology.Etcd)) }

func memberPods(s *session) []string {
	var out []string
	for _, c := range s.topology.OfKind(topology.Etcd) {
		for i := range c.Replicas {
			out = append(out, c.Member(i))
		}
	}
	return out
}

func clusterNames(s *session) []string {
	return mapped(s.file.Setup.Spec.Clusters, func(c v1alpha1.Cluster) string { return c.Name })
}

// otherClusters are the clusters that a run can leave out: all except the cluster of the root shard.
func otherClusters(s *session) []string {
	return slices.DeleteFunc(clusterNames(s), func(name string) bool { return name == s.topology.Home.Name })
}

// certificateNames are the components that have certificates, and the certificates.
func certificateNames(s *session) []string {
	var components, names []string
	for _, c := range pki.Table(s.topology) {
		if id := string(c.Component); !slices.Contains(components, id) {
			components = append(components, id)
		}
		names = append(names, c.Secret)
	}
	return append(components, names...)
}

// checkIDs are the IDs of all checks, with their titles.
func checkIDs(*cobra.Command) []string {
	return mapped(check.All(), func(c check.Check) string { return cobra.CompletionWithDesc(c.ID, c.Title) })
}

func idsOf(all []*topology.Component) []string {
	return mapped(all, func(c *topology.Component) string { return string(c.ID()) })
}

func namesOf(all []*topology.Component) []string {
	return mapped(all, func(c *topology.Component) string { return c.Name })
}
