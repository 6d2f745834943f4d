package cmd

import (
	"context"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
)

const (
	// renewEarly is when a job renews certificates, unless --expiring-within says otherwise: it runs weekly, and each
	// certificate gets several attempts.
	renewEarly = days(30 * day)
	// renewWeekly is early on Sundays.
	renewWeekly = "17 3 * * 0"
)

// printCronJob prints a job that renews certificates in the cluster of the setup. It contacts no cluster.
func (o *certsRenewOptions) printCronJob(ctx context.Context) error {
	s, err := loadForJob(o.env, &o.setup)
	if err != nil {
		return err
	}
	if err := o.mayRunInCluster(s); err != nil {
		return err
	}
	if _, err := o.named(s.topology); err != nil {
		return err
	}
	desired, err := deploy.LoadDesired(ctx, s.topology, nil, deploy.DesiredOptions{Now: o.env.Now(), Offline: true})
	if err != nil {
		return err
	}
	objects, err := desired.Objects()
	if err != nil {
		return err
	}
	within := o.within
	if within == 0 {
		within = renewEarly
	}
	j := render.Job{
		Name: "renewal", Schedule: renewWeekly,
		Args: append([]string{"certs", "renew", "--applied", "--expiring-within=" + within.String()}, o.names...),
	}
	for _, c := range s.topology.Clusters {
		there := slices.DeleteFunc(slices.Clone(objects), func(o render.Object) bool { return o.Cluster != c.Name })
		rules, _ := facts.RulesToApply(c.Namespace, there)
		j.Namespaced = append(j.Namespaced, render.NamespaceRules{Namespace: c.Namespace, Rules: rules})
	}
	_, j.Clusterwide = facts.RulesToApply(s.topology.Home.Namespace, objects)
	return s.printJob(j)
}

// mayRunInCluster fails if a job in the cluster of the setup could not do all that a renewal does.
func (o *certsRenewOptions) mayRunInCluster(s *session) error {
	const hint = "run kcpctl certs renew --expiring-within 30d regularly where kcpctl reaches everything"
	if err := s.mayRunInCluster(hint); err != nil {
		return err
	}
	if w := s.file.Setup.Spec.Workloads; w != nil && len(w.Clusters) > 0 {
		return clierr.New(clierr.BadInput, hint,
			"a job has access to its own cluster only, and spec.workloads.clusters has others")
	}
	return nil
}
