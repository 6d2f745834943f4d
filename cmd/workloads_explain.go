package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
)

type workloadsExplainOptions struct {
	env    *Env
	setup  setupFlags
	object rootArg
	output string
}

func newWorkloadsExplainCmd(env *Env) *cobra.Command {
	o := &workloadsExplainOptions{env: env}
	c := &cobra.Command{
		Use:   "explain KIND/NAME -w WORKSPACE",
		Short: "Show why each cluster was chosen for a workload, or was not",
		Long: `Show the last decision of the controller about an object in a workspace: for each cluster, whether it
was chosen and why. GOAL is how many replicas the cluster gets in the end, REPLICAS how many it has now, and
READY how many of these are ready. SYNCED is whether the cluster has accepted the object. The REASON of a
cluster without a share is the present state of its Cluster object.`,
		Example: `  kcpctl workloads explain deployment/web -w root:team
  kcpctl workloads explain ingress/shop -w root:team --in shop -o json`,
		Args: oneArg("object as KIND/NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.object.complete(args[0]); err != nil {
				return err
			}
			return openedCompute(env, &o.setup, o.run)(c.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	o.setup.add(f)
	o.object.add(f)
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// explanation is the result in machineFormats.
type explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup.
	Name string `json:"name"`
	compute.Explanation
}

func (o *workloadsExplainOptions) run(ctx context.Context, c *computeSession) error {
	e, err := c.Explain(ctx, o.object.rootName())
	if err != nil {
		return o.object.withKinds(err)
	}
	return o.print(&explanation{v1alpha1.APIVersion, "WorkloadExplanation", c.Topology.Name, *e})
}

func (o *workloadsExplainOptions) print(e *explanation) error {
	out := o.env.Streams.Out
	if o.output != "" {
		return encode(out, o.output, e)
	}
	fmt.Fprintf(out, "%s %s, namespace %s of %s\n", e.Resource, e.Object, cmp.Or(e.Namespace, noValue), e.Workspace)
	if e.Scheduled.Status != metav1.ConditionUnknown {
		fmt.Fprintf(out, "Scheduled: %s\n", describeCondition(e.Scheduled))
	}
	fmt.Fprintln(out)
	ui.Table(out, []string{"CLUSTER", "CHOSEN", "GOAL", "REPLICAS", "READY", "SYNCED", "REASON"},
		mapped(e.Clusters, verdictRow)...)
	return nil
}

// describeCondition returns Status, with the reason and the message if it is not True.
func describeCondition(c metav1.Condition) string {
	if c.Status == metav1.ConditionTrue {
		return string(c.Status)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s, %s: %s", c.Status, c.Reason, firstLine(c.Message)), ": ")
}

func verdictRow(v compute.Verdict) []string {
	goal := noValue
	replicas := noValue
	ready := noValue
	state := noValue
	if v.Share != nil && v.Share.Replicas != nil {
		goal, replicas, ready = fmt.Sprint(v.Goal), fmt.Sprint(*v.Share.Replicas), "0"
		if v.Share.Ready != nil {
			ready = fmt.Sprint(*v.Share.Ready)
		}
	}
	if v.Synced != nil {
		state = describeCondition(*v.Synced)
	}
	return []string{v.Cluster, yesNo(v.Chosen), goal, replicas, ready, state, firstLine(v.Reason)}
}
