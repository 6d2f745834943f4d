package cmd

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
)

// backupNightly is when a job takes backups, unless --schedule says otherwise.
const backupNightly = "23 2 * * *"

// claimScheme begins the target of a job that writes to a volume of its cluster.
const claimScheme = "pvc://"

// hasShard reports whether a cluster has a shard, so that a backup reads it.
func hasShard(t *topology.Topology, cluster string) bool {
	return slices.ContainsFunc(t.Components, func(c *topology.Component) bool {
		return c.Kind.IsShard() && c.Cluster.Name == cluster
	})
}

// printCronJob prints a job that takes backups in the cluster of the setup. It contacts no cluster.
func (o *backupCreateOptions) printCronJob() error {
	s, err := loadForJob(o.env, &o.setup)
	if err != nil {
		return err
	}
	if err := s.mayRunInCluster("run kcpctl backup create regularly where kcpctl reaches everything"); err != nil {
		return err
	}
	if _, err := selectedShards(s, o.shards); err != nil {
		return err
	}
	j := render.Job{
		Name: "backup", Schedule: o.schedule, Environment: o.credentials,
		Final: clierr.Unknown, // a partial backup: the shard cannot be read in a minute either
		Args:  []string{"backup", "create", "--applied", "--timeout=" + o.timeout.String()},
	}
	for _, c := range s.topology.Clusters {
		if hasShard(s.topology, c.Name) { // the root shard's also has the record
			j.Namespaced = append(j.Namespaced,
				render.NamespaceRules{Namespace: c.Namespace, Rules: facts.RulesToBackUp(c.Namespace)})
		}
	}
	to := o.to
	switch rest, claim := strings.CutPrefix(to, claimScheme); {
	case claim:
		name, dir, _ := strings.Cut(rest, "/")
		if name == "" {
			return clierr.New(clierr.BadInput, "name a PersistentVolumeClaim as "+claimScheme+"CLAIM/DIR",
				"--to=%s names no claim", to)
		}
		j.Claim = name
		to = path.Join(render.JobVolumeDir, dir)
	case !strings.HasPrefix(to, "s3://"):
		return clierr.New(clierr.BadInput, "name a bucket as s3://BUCKET/PREFIX, or a claim as pvc://CLAIM/DIR",
			"a job in the cluster cannot write to %q", to)
	}
	j.Args = append(j.Args, "--to="+to)
	for _, shard := range o.shards {
		j.Args = append(j.Args, "--shard="+shard)
	}
	for _, r := range o.recipients {
		j.Args = append(j.Args, "--recipient="+r)
	}
	if o.withoutKeys {
		j.Args = append(j.Args, "--without-keys")
	}
	if o.keep.last > 0 {
		j.Args = append(j.Args, fmt.Sprintf("--keep=%d", o.keep.last))
	}
	if o.keep.days > 0 {
		j.Args = append(j.Args, fmt.Sprintf("--keep-days=%d", o.keep.days))
	}
	return s.printJob(j)
}
