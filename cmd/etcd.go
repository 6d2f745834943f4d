package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

func newEtcdCmd(g *globalOptions) *cobra.Command {
	c := &cobra.Command{
		Use:   "etcd",
		Short: "List and replace members of managed etcds",
		Args:  noArgs,
	}
	c.AddCommand(newEtcdMembersCmd(g), newReplaceMemberCmd(g))
	return c
}

// loadMembers reads the setup file of a setup whose etcds have members.
func (o *setupOptions) loadMembers() (*session, error) {
	if o.local {
		return nil, clierr.New(clierr.BadInput, "leave out --local",
			"on this machine every etcd is embedded in a server, and has no members to list or to replace")
	}
	return o.load()
}

// openMembers connects to what runs the members. The caller closes the runtime.
func (s *session) openMembers() (*run.Members, error) {
	rt, err := s.open()
	if err != nil {
		return nil, err
	}
	pods, ok := rt.(run.MemberRuntime)
	if !ok {
		return nil, fmt.Errorf("%s runs no pods", rt.Where())
	}
	return &run.Members{Topology: s.Topology, Runtime: rt, Pods: pods, Now: s.Now}, nil
}

// theEtcds are the names of the managed etcds: that of their shard, or cache.
func theEtcds(_ *setup.File, t *topology.Topology) []string {
	var out []string
	for _, c := range t.OfKind(topology.Etcd) {
		out = append(out, c.Name)
	}
	return out
}

func theMembers(_ *setup.File, t *topology.Topology) []string {
	var out []string
	for _, c := range t.OfKind(topology.Etcd) {
		for i := range c.Replicas {
			out = append(out, c.Member(i))
		}
	}
	return out
}

type etcdMembersOptions struct {
	setupOptions
	name   string
	output string
}

func newEtcdMembersCmd(g *globalOptions) *cobra.Command {
	o := &etcdMembersOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "members [NAME]",
		Short: "Show the members of managed etcds, and how each is",
		Long: `Members asks every member of the setup's managed etcds, or of one, through the cluster's API server. A member is healthy
if it reads what a majority of the members knows.`,
		Example: `  kcpctl etcd members
  kcpctl etcd members root`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.name = args[0]
			}
			return o.run(c.Context())
		},
	}
	c.ValidArgsFunction = completeArgs(1, o.fromFile(theEtcds))
	o.addFlags(c.Flags())
	addOutput(c, &o.output, "", forPrograms()...)
	return c
}

func (o *etcdMembersOptions) run(ctx context.Context) error {
	s, err := o.loadMembers()
	if err != nil {
		return err
	}
	etcds, err := o.chosen(s.Topology)
	if err != nil {
		return err
	}
	members, err := s.openMembers()
	if err != nil {
		return err
	}
	defer members.Runtime.Close()
	found := []run.EtcdMember{}
	for _, c := range etcds {
		some, err := members.List(ctx, c)
		if err != nil {
			return err
		}
		found = append(found, some...)
	}
	if o.output != "" {
		return encode(o.Streams.Out, o.output, map[string]any{"items": found})
	}
	if len(found) == 0 {
		fmt.Fprintf(o.Streams.Err, "kcp %q has no managed etcd.\n", s.Topology.Name)
		return nil
	}
	o.printMembers(found)
	return nil
}

// chosen are the etcds that the user names: root or etcd/root, or all of them.
func (o *etcdMembersOptions) chosen(t *topology.Topology) ([]*topology.Component, error) {
	all := t.OfKind(topology.Etcd)
	if o.name == "" {
		return all, nil
	}
	for _, c := range all {
		if o.name == c.Name || o.name == string(c.ID()) {
			return []*topology.Component{c}, nil
		}
	}
	return nil, unknownName("managed etcd", o.name, theEtcds(nil, t))
}

func (e *Env) printMembers(all []run.EtcdMember) {
	out := e.Streams.Out
	var rows [][]string
	for _, m := range all {
		id, size, health := "-", "-", out.Green("yes")
		if m.ID != "" {
			id = m.ID
		}
		if m.DBSize > 0 {
			size = resource.NewQuantity(m.DBSize>>20<<20, resource.BinarySI).String()
		}
		if !m.Healthy {
			health = out.Red("no: " + m.Reason)
		}
		rows = append(rows, []string{string(m.Etcd), m.Pod, id, yesNo(m.Leader), yesNo(m.Learner), size, health})
	}
	ui.Table(out, []string{"ETCD", "POD", "ID", "LEADER", "LEARNER", "DB SIZE", "HEALTHY"}, rows...)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

type replaceMemberOptions struct {
	setupOptions
	pod     string
	yes     bool
	timeout time.Duration
	output  string
}

func newReplaceMemberCmd(g *globalOptions) *cobra.Command {
	o := &replaceMemberOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "replace-member POD",
		Short: "Replace a member of a managed etcd that has lost its data",
		Long: `Replace-member is for a member that cannot come back: its volume is lost or damaged, or it had none. The member is removed
from its etcd and added again, its pod and volume are deleted, and the pod that follows gets the data from the others, which
serve meanwhile. A majority of the members has to be healthy. A replacement that was interrupted continues when it is run
again.`,
		Example: "  kcpctl etcd replace-member demo-etcd-root-1",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.pod, err = oneArg(args, "pod"); err != nil {
				return err
			}
			if err := checkTimeout(o.timeout); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.ValidArgsFunction = completeArgs(1, o.fromFile(theMembers))
	f := c.Flags()
	o.addFlags(f)
	o.addOtherClusterFlag(f)
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long it may take, 0 for ever")
	addEvents(c, &o.output)
	return c
}

func (o *replaceMemberOptions) run(ctx context.Context) error {
	s, err := o.loadMembers()
	if err != nil {
		return err
	}
	r := &run.ReplaceMember{Observe: s.observe, Timeout: o.timeout}
	for _, c := range s.Topology.OfKind(topology.Etcd) {
		for i := range c.Replicas {
			if c.Member(i) == o.pod {
				r.Etcd, r.Index = c, i
			}
		}
	}
	if r.Etcd == nil {
		return unknownName("pod of a managed etcd", o.pod, theMembers(nil, s.Topology))
	}
	if err := run.CheckReplaceable(r.Etcd); err != nil {
		return err
	}
	members, err := s.openMembers()
	if err != nil {
		return err
	}
	defer members.Runtime.Close()
	r.Members = *members
	if !o.yes {
		yes, err := o.Streams.Confirm(ctx, fmt.Sprintf("Replace %s of %s in %s? Its pod and volume are deleted.",
			o.pod, r.Etcd.ID(), members.Runtime.Where()))
		if err != nil || !yes {
			return err
		}
	}
	end := s.begin(ctx, fmt.Sprintf("replace %s of kcp %q", o.pod, s.Topology.Name), o.output)
	defer end()
	return r.Run(ctx)
}
