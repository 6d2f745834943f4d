package cmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// tree is a status as a tree: the setup, its components, and what concerns all of them.
func (o *statusOptions) tree(st *status.Status) ui.Node {
	w := o.env.Streams.Out
	root := ui.Node{Cells: []string{"kcp " + w.Bold(st.Name), "", st.Version, o.headerText(st), "", st.URL}}
	add := func(cells ...string) { root.Children = append(root.Children, ui.Node{Cells: cells}) }
	several := len(st.Clusters) > 0
	if several {
		root.Cells = slices.Insert(root.Cells, 1, fmt.Sprintf("%d clusters", len(st.Clusters)))
	}
	for _, g := range o.groups(st) {
		cells := []string{
			g.name(), g.replicas(), g.Version, o.stateText(st, g.Component), o.age(g.Since),
			w.Text(g.notes(o.env.Now(), st.State.Off())),
		}
		if several {
			cells = slices.Insert(cells, 1, g.Cluster)
		}
		add(cells...)
	}
	next := gather.Once() // several clusters can have one API server
	for _, cl := range st.Clusters {
		if cl.Unreachable != "" {
			add(w.Yellow(w.Text(fmt.Sprintf("cluster %s cannot be reached: %s", cl.Name,
				withNext(firstLine(cl.Unreachable), next(cl.Next))))))
		}
	}
	if st.Run != nil {
		add(w.Yellow(w.Text(inProgress(st.Run, o.env.Now()))))
	}
	if st.LastRun != nil {
		add(w.Yellow(w.Text(lastRun(st.LastRun, o.env.Now()))))
	}
	if st.Restoring != "" {
		add(w.Yellow(w.Text("a restore of backup " + st.Restoring + " has not finished")))
	}
	if st.PKIProblem != "" {
		add(w.Yellow(w.Text(st.PKIProblem + ": restore it with kcpctl certs import")))
	}
	if st.LostKeys != "" {
		add(w.Yellow(w.Text(withNext(st.LostKeys, st.LostKeysNext))))
	}
	if st.Problem != "" {
		add(w.Yellow(w.Text(st.Problem)))
	}
	for _, sh := range st.Shards {
		if !inSetup(st, sh.Name) {
			add(w.Yellow(w.Text("shard " + sh.Name + " (" + sh.BaseURL + ") is registered but not in the setup")))
		}
	}
	if !st.NextExpiry.IsZero() {
		add(fmt.Sprintf("certificates: the first %s (%s, %s)",
			ui.Expiry(st.NextExpiry.Sub(o.env.Now())), st.NextExpiryName, st.NextExpiry.UTC().Format(time.DateOnly)))
	}
	for _, r := range st.Rotations {
		text := fmt.Sprintf("rotation of the %s: %s", r.Rotations, progress(r))
		if st.Run == nil {
			text += "; continue with: " + r.Next
		}
		add(w.Yellow(text))
	}
	if drift := o.drifted(st); drift != "" && !st.State.Off() {
		add(drift)
	}
	if st.Next != "" {
		add("next: " + st.Next)
	}
	return root
}

// drifted is the line about differences between the setup and what runs; "" if they were not looked for.
func (o *statusOptions) drifted(st *status.Status) string {
	w := o.env.Streams.Out
	unknown := ""
	if st.DriftUnknown > 0 {
		unknown = fmt.Sprintf("; %s on clusters that cannot be reached",
			gather.Count(st.DriftUnknown, "object is", "objects are"))
	}
	switch {
	case st.DriftProblem != "":
		return w.Yellow(w.Text("drift: unknown: " + firstLine(st.DriftProblem)))
	case st.Drift != nil && *st.Drift > 0:
		return w.Yellow(fmt.Sprintf("drift: %s from the setup (see %s)%s",
			gather.Count(*st.Drift, "object differs", "objects differ"), o.setup.command("diff"), unknown))
	case st.Drift != nil:
		return "drift: none" + unknown
	}
	return ""
}

// inSetup reports whether a registered shard is part of the setup.
func inSetup(st *status.Status, shard string) bool {
	return slices.ContainsFunc(st.Components, func(c status.Component) bool { return c.ID == topology.ShardID(shard) })
}

// group is a component, or several in the same state.
type group struct {
	status.Component
	names    []string
	cordoned bool
	clusters *int
}

// groups groups many components of the same kind and state, unless --all is given.
func (o *statusOptions) groups(st *status.Status) []*group {
	shards := map[string]status.Shard{}
	for _, sh := range st.Shards {
		shards[sh.Name] = sh
	}
	var all []*group
	for _, c := range st.Components {
		g := &group{Component: c, names: []string{c.ID.Name()}}
		if c.ID.Kind().IsShard() {
			sh := shards[c.ID.ShortName()]
			g.cordoned = sh.Cordoned
			g.clusters = sh.LogicalClusters
		}
		all = append(all, g)
	}
	if o.all {
		return all
	}
	var out []*group
	for _, alike := range gather.Alike(all, (*group).state) {
		for _, other := range alike[1:] {
			alike[0].join(other)
		}
		out = append(out, alike[0])
	}
	return out
}

// state is what components of a group have in common.
func (g *group) state() string {
	return fmt.Sprint(g.ID.Kind(), g.Cluster, g.Replicas, g.ReadyReplicas, g.Version, g.Well(), g.problem(), g.Restarts,
		g.cordoned, g.clusters == nil, g.works())
}

// join adds a component in the same state.
func (g *group) join(other *group) {
	g.names = append(g.names, other.names...)
	if g.Since.IsZero() || !other.Since.IsZero() && other.Since.Before(g.Since) {
		g.Since = other.Since
	}
	if other.clusters != nil {
		sum := *g.clusters + *other.clusters
		g.clusters = &sum
	}
}

// name is shard/alpha, or shard/{alpha,beta,...}.
func (g *group) name() string {
	if len(g.names) == 1 {
		return string(g.ID)
	}
	return gather.Names(string(g.ID.Kind())+"/", g.names)
}

// replicas is 2/3, or -/3 if only the setup is known. It is empty for what runs nothing, such as a workspace.
func (g *group) replicas() string {
	if kind := g.ID.Kind(); !kind.Runs() || kind == topology.Physical && g.Replicas == 0 {
		return ""
	}
	if g.Unknown {
		return fmt.Sprintf("-/%d", g.Replicas)
	}
	return fmt.Sprintf("%d/%d", g.ReadyReplicas, g.Replicas)
}

// problem returns the problem of a component, or empty.
func (g *group) problem() string {
	switch {
	case g.Reason != "" && g.Next != "":
		return g.Reason + " (repair it with: " + g.Next + ")"
	case g.Reason != "":
		return g.Reason
	case g.Registered != nil && !*g.Registered:
		return "not registered with the root shard"
	case g.Agent != nil && g.Agent.Problem != "":
		return g.Agent.Problem
	}
	return g.Unreachable
}

// works is the progress of an agent, or empty. All agents of a group have the same.
func (g *group) works() string {
	a := g.Agent
	if a == nil {
		return ""
	}
	var parts []string
	if a.Published != nil {
		parts = append(parts, a.Published.String()+" resources published")
	}
	if a.Answering != nil {
		parts = append(parts, a.Answering.String()+" shards answer")
	}
	if a.Unknown != "" {
		parts = append(parts, "not known whether it publishes: "+a.Unknown)
	}
	return strings.Join(parts, ", ")
}

// leader is the pod that leads, of a single agent. The identity in a Lease is the name of the pod and a random ID
// (controller-runtime: pkg/leaderelection/leader_election.go).
func (g *group) leader() string {
	if g.Agent == nil || g.Agent.Leader == "" || len(g.names) > 1 {
		return ""
	}
	pod, _, _ := strings.Cut(g.Agent.Leader, "_")
	return pod + " leads"
}

// notes are the remarks on a group. off means that it is not meant to run.
func (g *group) notes(now time.Time, off bool) string {
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if !off {
		add(g.problem())
	}
	add(g.works())
	add(g.leader())
	if g.Restarts > 0 {
		add(gather.Count(int(g.Restarts), "restart", "restarts"))
	}
	if g.cordoned {
		add("cordoned")
	}
	if g.clusters != nil {
		add(gather.Count(*g.clusters, "logical cluster", "logical clusters"))
	}
	if left := g.NextExpiry.Sub(now); !g.NextExpiry.IsZero() && left < 30*24*time.Hour &&
		!strings.Contains(g.Reason, "expired") {
		add("a certificate " + ui.Expiry(left))
	}
	notes := strings.Join(parts, ", ")
	if n := len(g.names); n > 1 {
		notes += fmt.Sprintf(" (%d in the same state; --all lists them)", n)
	}
	return strings.TrimSpace(notes)
}

func (o *statusOptions) age(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return ui.Age(o.env.Now().Sub(since))
}

// headerText is the state of the whole setup.
func (o *statusOptions) headerText(st *status.Status) string {
	switch st.State {
	case status.Stopped:
		return o.env.Streams.Out.Yellow("Stopped (data kept)")
	case status.NotInstalled:
		return o.env.Streams.Out.Yellow("not installed")
	}
	return o.readyText(st.Ready)
}

// stateText is whether a component is well, if that is known. Nothing is wrong with one that is not meant to run.
func (o *statusOptions) stateText(st *status.Status, c status.Component) string {
	if st.State.Off() {
		return "-"
	}
	if c.Unknown {
		return o.env.Streams.Out.Yellow("Unknown")
	}
	return o.readyText(c.Well())
}

func (o *statusOptions) readyText(ready bool) string {
	if ready {
		return o.env.Streams.Out.Green("Ready")
	}
	return o.env.Streams.Out.Red("NotReady")
}
