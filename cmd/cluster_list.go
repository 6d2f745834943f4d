package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/cmd/ui"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
)

// What a table shows for a value that there is not, or that is not known: as kubectl.
const (
	noValue      = "<none>"
	unknownValue = "<unknown>"
)

// notRegistered is the reason of a cluster of the setup file without a Cluster object.
const notRegistered = "NotRegistered"

type clusterListOptions struct {
	env    *Env
	setup  setupFlags
	output string
}

func newClusterListCmd(env *Env) *cobra.Command {
	o := &clusterListOptions{env: env}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the physical clusters, and whether they are ready",
		Long: `List the Clusters of the compute workspace, also those that are not in the setup file. REASON is why a
cluster is not ready. LEAVES is the number of objects in workspaces that are scheduled to it, and APIS how
many of its APIs workspaces can use there. With -o wide, EVICTED is True if other clusters run its share, too,
because it has been not ready for longer than evictAfter, or False with the reason why they do not.`,
		Example: `  kcpctl cluster list -o wide
  kcpctl cluster list -o jsonpath='{.items[*].metadata.name}'`,
		Args: noArgs,
		RunE: withoutArgs(openedCompute(env, &o.setup, o.run)),
	}
	o.setup.add(c.Flags())
	addOutput(c, &o.output, "", append([]string{outputWide}, machineFormats...)...)
	return c
}

func (o *clusterListOptions) run(ctx context.Context, c *computeSession) error {
	return o.list(ctx, c, physicalNames(c.session))
}

// list prints the Clusters, and the clusters of the setup file that are not registered.
func (o *clusterListOptions) list(ctx context.Context, c *computeSession, inFile []string) error {
	all, err := c.Clusters(ctx)
	if err != nil {
		return err
	}
	if o.output != "" && o.output != outputWide {
		return encode(o.env.Streams.Out, o.output, listOf("ClusterList", c.Topology.Name, all))
	}
	header := []string{"NAME", "READY", "REASON", "SCHEDULABLE", "MODE", "VERSION", "APIS", "LEAVES", "AGE"}
	if o.output == outputWide {
		header = append(header, "LABELS", "SYNCER", "EVICTED", "MESSAGE")
	}
	var rows [][]string
	for _, cl := range all {
		rows = append(rows, o.row(cl, len(header)))
	}
	for _, name := range inFile {
		if slices.ContainsFunc(all, func(cl *api.Cluster) bool { return cl.Name == name }) {
			continue
		}
		row := slices.Repeat([]string{unknownValue}, len(header))
		row[0], row[1], row[2] = name, string(metav1.ConditionUnknown), notRegistered
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		o.env.noneFound("clusters", fmt.Sprintf("kcp %q", c.Topology.Name))
		return nil
	}
	ui.Table(o.env.Streams.Out, header, rows...)
	return nil
}

// row returns the first columns of a cluster.
func (o *clusterListOptions) row(cl *api.Cluster, columns int) []string {
	ready, schedulable := compute.ConditionOf(cl, api.ConditionReady), compute.ConditionOf(cl, api.ConditionSchedulable)
	reason := cmp.Or(ready.Reason, unknownValue)
	if ready.Status == metav1.ConditionTrue && reason == api.ReasonReady {
		reason = noValue
	}
	if cl.Spec.Unschedulable && schedulable.Status != metav1.ConditionFalse { // the controller has not seen it yet
		schedulable.Status = metav1.ConditionFalse
		schedulable.Reason = api.ReasonCordoned
	}
	may := string(schedulable.Status)
	if schedulable.Status == metav1.ConditionFalse {
		may += " (" + schedulable.Reason + ")"
	}
	serves := 0
	wanted := 0
	for _, a := range cl.Status.APIs {
		if a.State.Serves() {
			serves++
		}
		if a.State != api.APIRemoved {
			wanted++
		}
	}
	leaves := unknownValue
	if n := cl.Status.Leaves; n != nil {
		leaves = fmt.Sprint(*n)
	}
	syncer := unknownValue
	if s := cl.Status.Syncer; s != nil {
		syncer = cmp.Or(strings.TrimSpace(s.Holder+" "+s.Version), unknownValue)
	}
	return []string{
		cl.Name, string(ready.Status), reason, may, string(cl.Mode()), cmp.Or(cl.Status.Version, unknownValue),
		fmt.Sprintf("%d/%d", serves, wanted), leaves, o.age(cl.CreationTimestamp.Time),
		cmp.Or(labels.Set(ownLabels(cl)).String(), noValue), syncer, evictedOf(cl),
		cmp.Or(firstLine(ready.Message), noValue),
	}[:columns]
}

// evictedOf returns whether other clusters run the share of a cluster, too, or why they do not.
func evictedOf(cl *api.Cluster) string {
	switch c := compute.ConditionOf(cl, api.ConditionEvicted); {
	case c.Status == metav1.ConditionTrue:
		return "True"
	case c.Reason == api.ReasonFullDisruption, c.Reason == api.ReasonCredentialsRefused:
		return "False (" + c.Reason + ")"
	}
	return noValue
}

// ownLabels are the labels of a cluster that are not kcpctl's.
func ownLabels(cl *api.Cluster) map[string]string {
	own := maps.Clone(cl.Labels)
	maps.DeleteFunc(own, func(key, _ string) bool { _, managed := render.WorkspaceLabels("", "")[key]; return managed })
	return own
}

func (o *clusterListOptions) age(since time.Time) string {
	if since.IsZero() {
		return unknownValue
	}
	return ui.Age(o.env.Now().Sub(since))
}
