package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
)

func newEtcdCmd(env *Env) *cobra.Command {
	return newGroup("etcd", "List and replace members of managed etcds",
		newEtcdMembersCmd(env), newReplaceMemberCmd(env))
}

// loadMembers loads a setup whose etcds have members.
func loadMembers(env *Env, flags *setupFlags) (*session, error) {
	if flags.local.enabled {
		return nil, clierr.New(clierr.BadInput, "to see the servers, run "+flags.command("status"),
			"with --local, data is inside the servers: there are no etcd members")
	}
	return loadSetup(env, flags)
}

// members returns the members of the managed etcds. The session is connected.
func (s *session) members() (etcds.Members, error) {
	pods, ok := workspace.Below(s.runtime).(etcds.MemberRuntime)
	if !ok {
		return etcds.Members{}, fmt.Errorf("%s has no etcds that kcpctl can read", s.runtime.Where())
	}
	return etcds.Members{Store: s.runtime.Store(), Pods: pods, Now: s.env.Now}, nil
}

type etcdMembersOptions struct {
	env    *Env
	setup  setupFlags
	name   string
	output string
}

func newEtcdMembersCmd(env *Env) *cobra.Command {
	o := &etcdMembersOptions{env: env}
	c := &cobra.Command{
		Use:   "members [NAME]",
		Short: "List the members of managed etcds, and their health",
		Long: `Query every member of the setup's managed etcds, or of one etcd, through the cluster's API
server. A member is healthy if it can read what a majority of the members has agreed on. With an alarm, an etcd
accepts no writes: NOSPACE of a healthy member, or CORRUPT of a member that replace-member replaces. The exit
code is 5 if a cluster with members cannot be reached.`,
		Example: `  kcpctl etcd members
  kcpctl etcd members root`,
		Args: maxArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.name = args[0]
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(1, o.setup.names(env, etcdNames)),
	}
	o.setup.add(c.Flags())
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

func (o *etcdMembersOptions) run(ctx context.Context) error {
	s, err := loadMembers(o.env, &o.setup)
	if err != nil {
		return err
	}
	all, err := o.selected(s)
	if err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	members, err := s.members()
	if err != nil {
		return err
	}
	lost, err := s.leaveOut(ctx)
	if err != nil {
		return err
	}
	var found []etcds.EtcdMember
	reached, without := withReachable(all, lost)
	for _, c := range reached {
		some, err := members.List(ctx, c)
		if err != nil {
			return err
		}
		found = append(found, some...)
	}
	switch {
	case o.output != "":
		err = encode(o.env.Streams.Out, o.output, partialList[etcds.EtcdMember]{
			listOf("EtcdMemberList", s.topology.Name, found), without,
		})
	case len(found) > 0:
		o.print(found)
	case len(without) == 0:
		o.env.noneFound("members of managed etcds", fmt.Sprintf("kcp %q", s.topology.Name))
	}
	return cmp.Or(err, unknownOn("members", without))
}

// selected are the etcds that the user names, as root or etcd/root, or all of them.
func (o *etcdMembersOptions) selected(s *session) ([]*topology.Component, error) {
	all := s.topology.OfKind(topology.Etcd)
	if o.name == "" {
		return all, nil
	}
	for _, c := range all {
		if o.name == c.Name || o.name == string(c.ID()) {
			return []*topology.Component{c}, nil
		}
	}
	return nil, unknownName("managed etcd", o.name, etcdNames(s))
}

func (o *etcdMembersOptions) print(all []etcds.EtcdMember) {
	out := o.env.Streams.Out
	var rows [][]string
	for _, m := range all {
		id, size, health := "-", "-", out.Green("yes")
		if m.ID != "" {
			id = m.ID
		}
		if m.DBSize > 0 {
			size = resource.NewQuantity(m.DBSize>>20<<20, resource.BinarySI).String()
		}
		switch {
		case !m.Healthy:
			health = out.Red("no: " + m.Reason)
		case len(m.Alarms) > 0:
			health = out.Yellow("yes, alarm " + strings.Join(m.Alarms, ", "))
		}
		rows = append(rows, []string{string(m.Etcd), m.Pod, id, yesNo(m.Leader), yesNo(m.Learner), size, health})
	}
	ui.Table(out, []string{"ETCD", "POD", "ID", "LEADER", "LEARNER", "DB SIZE", "HEALTHY"}, rows...)
}

type replaceMemberOptions struct {
	env   *Env
	setup setupFlags
	pod   string
	removalFlags
	timeout time.Duration
	output  string
}

func newReplaceMemberCmd(env *Env) *cobra.Command {
	o := &replaceMemberOptions{env: env}
	c := &cobra.Command{
		Use:   "replace-member POD",
		Short: "Replace a member of a managed etcd that has lost its data",
		Long: `Replace a member that cannot recover, because its volume is lost or damaged or because it had none,
or whose data differs from that of the others (alarm CORRUPT). kcpctl removes the member from its etcd,
disarms that alarm, adds the member again, and deletes its pod and volume. The new pod gets the data from the
other members, which keep serving. A majority of the members must be healthy. Rerun the command to continue
after an interruption.`,
		Example:           "  kcpctl etcd replace-member demo-etcd-root-1",
		Args:              oneArg("pod"),
		RunE:              withArg(&o.pod, o.run),
		ValidArgsFunction: completeArgs(1, o.setup.names(env, memberPods)),
	}
	f := c.Flags()
	o.setup.add(f)
	o.setup.addAllowOtherCluster(c)
	o.addRemoval(c, "the pod and its volume")
	addTimeout(f, &o.timeout, "replace the member")
	addEvents(c, &o.output)
	return c
}

func (o *replaceMemberOptions) run(ctx context.Context) error {
	if err := o.validateDryRun(); err != nil {
		return err
	}
	s, err := loadMembers(o.env, &o.setup)
	if err != nil {
		return err
	}
	r := &etcds.ReplaceMember{Observe: s.reporter.observe, Timeout: o.timeout}
	for _, c := range s.topology.OfKind(topology.Etcd) {
		for i := range c.Replicas {
			if c.Member(i) == o.pod {
				r.Etcd = c
				r.Index = i
			}
		}
	}
	if r.Etcd == nil {
		return unknownName("pod of a managed etcd", o.pod, memberPods(s))
	}
	if err := etcds.CheckReplaceable(r.Etcd); err != nil {
		return err
	}
	if o.inClient() {
		s.env.printRefs(r.Deletes()...)
		return nil
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	members, err := s.members()
	if err != nil {
		return err
	}
	r.Members = members
	r.Runtime = s.runtime
	var objects []plan.Item
	yes, err := removal{
		removalFlags: &o.removalFlags, session: s,
		question: fmt.Sprintf("Replace %s of %s in %s? Its pod and volume will be deleted.", o.pod, r.Etcd.ID(),
			s.runtime.Where()),
		check:   func(ctx context.Context) (err error) { objects, err = r.Check(ctx); return err },
		preview: func(context.Context) error { s.env.printPlan(deletionOf(objects)); return nil },
	}.confirmed(ctx)
	if err != nil || !yes {
		return err
	}
	end := s.reporter.begin(ctx, fmt.Sprintf("replace %s of kcp %q", o.pod, s.topology.Name))
	defer end()
	return r.Run(ctx)
}
