package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

func newWorkloadsCmd(env *Env) *cobra.Command {
	return newGroup("workloads",
		"Show and change where the workloads of workspaces run, and manage which APIs they can use",
		newWorkloadsExplainCmd(env), newWorkloadsAPIsCmd(env), newWorkloadsRebalanceCmd(env))
}

type workloadsAPIsOptions struct {
	env    *Env
	setup  setupFlags
	output string
}

func newWorkloadsAPIsCmd(env *Env) *cobra.Command {
	o := &workloadsAPIsOptions{env: env}
	c := &cobra.Command{
		Use:   "apis",
		Short: "List the APIs, and which clusters can serve them",
		Long: `Show the state of each API in each cluster. Published: the published schema is that of the cluster.
Compatible: the cluster accepts every object of the published schema. Incompatible: some objects would be
refused or lose fields there, so nothing of the API is scheduled to it; MESSAGE has the path of the field.
Ignored: the API is not to be published, or the cluster does not serve it.
Removed: the setup no longer has the API. It stays published, but nothing of it is scheduled or synced.

The schema of an API stays as it was published first. If a narrower one permits a cluster to serve the API, the
command also lists all fields that objects would lose in all workspaces, and the command that accepts that.`,
		Example: `  kcpctl workloads apis
  kcpctl workloads apis -o json | jq '.items[] | select(.state == "Incompatible")'`,
		Args: noArgs,
		RunE: withoutArgs(openedCompute(env, &o.setup, o.run)),
	}
	o.setup.add(c.Flags())
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// apiState is an API in a cluster.
type apiState struct {
	api.APIStatus
	Cluster string `json:"cluster"`
}

// run prints the APIs, sorted by name and cluster.
func (o *workloadsAPIsOptions) run(ctx context.Context, c *computeSession) error {
	clusters, err := c.Clusters(ctx)
	if err != nil {
		return err
	}
	var all []apiState
	for _, cl := range clusters {
		for _, a := range cl.Status.APIs {
			all = append(all, apiState{a, cl.Name})
		}
	}
	slices.SortStableFunc(all,
		func(a, b apiState) int { return cmp.Compare(a.GroupResource().String(), b.GroupResource().String()) })
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, listOf("APIList", c.Topology.Name, all))
	}
	if len(all) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "no cluster of kcp %q has reported its APIs yet.\n", c.Topology.Name)
		return nil
	}
	var rows [][]string
	last := ""
	for _, a := range all {
		name := a.GroupResource().String()
		row := []string{name, a.Cluster, string(a.State), cmp.Or(a.Version, noValue),
			cmp.Or(firstLine(a.Message), noValue)}
		if name == last {
			row[0] = ""
		}
		rows, last = append(rows, row), name
	}
	ui.Table(o.env.Streams.Out, []string{"API", "CLUSTER", "STATE", "VERSION", "MESSAGE"}, rows...)
	for _, a := range all {
		printAcceptance(o.env.Streams.Err, a.APIStatus, a.Cluster, c.Path)
	}
	return nil
}

// printAcceptance prints what the published schema of an API would lose so that a cluster can serve it, and the command
// that accepts exactly that.
func printAcceptance(w io.Writer, a api.APIStatus, cluster, workspace string) {
	if a.Accept == nil {
		return
	}
	fmt.Fprintf(w, "\n%s can serve %s with a narrower schema. At the next write of an object in any workspace, "+
		"kcp drops\nwhat the schema lacks, or refuses the write. This cannot be undone:\n", cluster, a.GroupResource())
	for _, field := range a.Accept.Lost {
		fmt.Fprintf(w, "  %s\n", field)
	}
	fmt.Fprintf(w, "To accept exactly this, run in workspace %s:\n  kubectl annotate clusters.%s %s %s=%s\n", workspace,
		api.Group, cluster, api.AnnotationAcceptSchema, a.Accept.Value)
}
