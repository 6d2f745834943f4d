package run

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// guard refuses changes that would lose data although every object of them can be applied.
func guard(p *plan.Plan, o PlanOptions) error {
	var errs []error
	for _, it := range p.Items {
		if it.Action != plan.Change {
			continue
		}
		switch {
		case it.Kind == "StatefulSet" && it.Component.Kind() == topology.Etcd:
			errs = append(errs, sameMembers(it))
		case it.Kind == "Deployment" && !o.AllowEtcdChange:
			errs = append(errs, sameEtcd(it))
		}
	}
	return errors.Join(errs...)
}

// sameMembers: the members of an etcd are told about each other when its data is made; a member more would start an etcd of
// its own.
func sameMembers(it plan.Item) error {
	live, _, _ := unstructured.NestedInt64(it.Live.Object, "spec", "replicas")
	want, _, _ := unstructured.NestedInt64(it.Want.Object, "spec", "replicas")
	if live == want {
		return nil
	}
	return clierr.New(clierr.Failed, "set the number of members back, or move the data to a new etcd",
		"%s: an etcd with data cannot go from %d to %d members", it.Component, live, want)
}

// sameEtcd: a shard that starts on another etcd starts without its workspaces.
func sameEtcd(it plan.Item) error {
	if k := it.Component.Kind(); k != topology.RootShard && k != topology.Shard {
		return nil
	}
	live, want := etcdFlagsOf(it.Live), etcdFlagsOf(it.Want)
	if live == want || live == "" {
		return nil
	}
	return clierr.New(clierr.Failed, "set spec's etcd back; if the data was moved, say so with --allow-etcd-change",
		"%s would leave the etcd that holds its workspaces: %s, now %s", it.Component, live, want)
}

// etcdFlagsOf are the flags of a shard's workload that say where its data is.
func etcdFlagsOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	var found []string
	for _, c := range containers {
		m, ok := c.(map[string]any)
		if !ok {
			continue
		}
		args, _ := m["args"].([]any)
		for _, a := range args {
			s := fmt.Sprint(a)
			if strings.HasPrefix(s, "--etcd-servers=") || strings.HasPrefix(s, "--etcd-prefix=") || strings.HasPrefix(s, "--embedded-etcd-directory=") {
				found = append(found, strings.TrimPrefix(s, "--"))
			}
		}
	}
	return strings.Join(found, " ")
}
