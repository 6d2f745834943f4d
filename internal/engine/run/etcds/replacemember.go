package etcds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// The steps of a replacement.
const (
	stepMembers = "members"
	stepRemove  = "remove member"
	stepEmpty   = "empty volume"
	stepAdd     = "add member"
	stepJoin    = "join"
)

// envRemoved has the IDs of the members that a replacement removes, next to the variables that hold the start of
// members. etcd ignores it.
const envRemoved = "KCPCTL_REMOVED_MEMBERS"

// noMember is not the index of any member.
const noMember = -1

// ReplaceMemberRuntime is what ReplaceMember needs of a runtime.
type ReplaceMemberRuntime interface {
	run.Archive
	run.Storer
	run.Keeper
	run.Locker
	State(ctx context.Context, c *topology.Component) (ready.State, error)
}

// ReplaceMember replaces a member of a managed etcd that has lost its data. The other members keep serving. After an
// interruption the replacement starts again, which costs nothing but time.
type ReplaceMember struct {
	Members
	Runtime ReplaceMemberRuntime
	// Etcd is the etcd, Index the number of the member.
	Etcd    *topology.Component
	Index   int32
	Observe run.Observer
	// Timeout limits the whole replacement; 0 means no limit.
	Timeout time.Duration

	state *pki.State
	*reporter
}

// CheckReplaceable refuses an etcd of which no member can be replaced.
func CheckReplaceable(c *topology.Component) error {
	if c.Replicas > 1 {
		return nil
	}
	return clierr.New(clierr.Failed, "restore a backup of its volume, or "+bringBack(c, false),
		"%s has only one member: no other member has its data, so a new one could not copy it", c.ID())
}

// Run replaces the member.
//
// An etcd knows its members by ID. A member that has lost its data must never return under its old ID: the others
// rely on writes that it has acknowledged. So it is removed, and added under another ID. It is added as a voter:
// after the removal the others are as many as a majority needs with or without it, so a learner would be no safer,
// and would never vote if the run ends before it is promoted.
//
// While this happens, the pod keeps restarting. It must not start without data before it was added: it would form its
// own cluster. So first a start without data is made impossible for every member, then it is allowed for this one.
func (r *ReplaceMember) Run(ctx context.Context) error {
	r.reporter = run.NewReporter(r.Observe, r.Now)
	if err := CheckReplaceable(r.Etcd); err != nil {
		return err
	}
	ctx, cancel := run.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return run.Locked(ctx, r.Runtime, r.replace, nil)
}

// Check returns what Run deletes: the member's pod and volume. It fails if the member cannot be replaced, or need not
// be. It writes nothing.
func (r *ReplaceMember) Check(ctx context.Context) ([]plan.Item, error) {
	r.reporter = run.NewReporter(r.Observe, r.Now)
	_, _, done, err := r.read(ctx)
	if err != nil || done {
		return nil, err
	}
	var out []plan.Item
	for _, ref := range r.Deletes() {
		out = append(out, plan.Item{Ref: ref, Component: r.Etcd.ID(), Action: plan.Delete})
	}
	return out, nil
}

// Deletes returns the member's pod and the claim of its volume.
func (r *ReplaceMember) Deletes() []plan.Ref {
	at := plan.Ref{Cluster: r.Etcd.Cluster.Name, Namespace: r.Etcd.Cluster.Namespace}
	pod := at
	claim := at
	pod.GroupVersionKind, pod.Name = kind.Pod.GroupVersionKind, r.pod()
	claim.GroupVersionKind, claim.Name = kind.PersistentVolumeClaim.GroupVersionKind, render.MemberClaim(r.pod())
	return []plan.Ref{pod, claim}
}

// read reads the installation and the members. done means that an earlier run has replaced the member.
func (r *ReplaceMember) read(
	ctx context.Context,
) (installed *record.Record, known []etcd.Member, done bool, err error) {
	if installed, r.state, err = run.LoadInstallation(ctx, r.Runtime); err != nil {
		return nil, nil, false, err
	}
	if d, ok := installed.Data[r.Etcd.ID()]; ok && d.Members != int64(r.Etcd.Replicas) {
		return nil, nil, false, clierr.New(clierr.Failed, "change the number of members in the setup file back",
			"%s has %d members, but the setup file has %d",
			r.Etcd.ID(), d.Members, r.Etcd.Replicas)
	}
	if known, done, err = r.inspect(ctx); err != nil {
		err = r.Fail(stepMembers, err)
	}
	return installed, known, done, err
}

func (r *ReplaceMember) replace(ctx context.Context) error {
	installed, known, done, err := r.read(ctx)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		name    string
		do      func(context.Context) error
		missing string
	}{
		{stepRemove, func(ctx context.Context) error { return r.remove(ctx, known) }, "it is still a member"},
		{stepEmpty, r.empty, "its volume is not empty"},
		{stepAdd, r.add, "it cannot join yet"},
	} {
		if done {
			break
		}
		r.Step(s.name, run.Running, r.pod())
		if err := s.do(ctx); err != nil {
			return r.Fail(s.name, r.incomplete(s.missing, err))
		}
		r.Step(s.name, run.Done, r.pod())
	}
	return r.join(ctx, installed)
}

// record records the new volume.
func (r *ReplaceMember) record(ctx context.Context, installed *record.Record) error {
	d, ok := installed.Data[r.Etcd.ID()]
	if !ok {
		return nil // it is the installation of an earlier release
	}
	found, err := r.Runtime.Storage(ctx, map[topology.ID]record.Data{r.Etcd.ID(): d})
	if err != nil {
		return err
	}
	installed.SetVolumes(found)
	return r.Runtime.Keep(ctx, installed)
}

func (r *ReplaceMember) pod() string { return r.Etcd.Member(r.Index) }

// inspect determines whether the member can and must be replaced. done means that an earlier run has replaced it, and
// only the overrides of its start are left.
func (r *ReplaceMember) inspect(ctx context.Context) (known []etcd.Member, done bool, err error) {
	r.Step(stepMembers, run.Running, "")
	s, err := r.ask(ctx, r.state, r.Etcd)
	if err != nil {
		return nil, false, err
	}
	if s.members[r.Index].Healthy {
		env, err := r.Pods.MemberStart(ctx, r.Etcd)
		if err != nil || env != nil {
			return nil, err == nil, err
		}
		return nil, false, r.isHealthy(s.members[r.Index])
	}
	if s.healthy() <= int(r.Etcd.Replicas)/2 || len(s.known) == 0 {
		return nil, false, noMajority(r.Etcd, s)
	}
	r.Step(stepMembers, run.Done, fmt.Sprintf("%d of %d are healthy; %s: %s",
		s.healthy(), r.Etcd.Replicas, r.pod(), s.members[r.Index].Reason))
	return s.known, false, nil
}

// isHealthy refuses to replace a healthy member.
func (r *ReplaceMember) isHealthy(m EtcdMember) error {
	if m.corrupt() {
		return clierr.New(clierr.Failed, bringBack(r.Etcd, false),
			"%s has the alarm %s, which names none of its members: which one is corrupt is not known, and %s is not "+
				"replaced", r.Etcd.ID(), etcd.AlarmCorrupt, r.pod())
	}
	return clierr.New(clierr.Failed, "kcpctl etcd members shows the state of each member",
		"%s is healthy: it is not replaced", r.pod())
}

// remove removes the member under its old ID, and under the one that an interrupted run may have added. The IDs are
// recorded first, with what holds its start, so that a later run still knows whose alarms it may disarm.
func (r *ReplaceMember) remove(ctx context.Context, known []etcd.Member) error {
	held, err := r.Pods.MemberStart(ctx, r.Etcd)
	if err != nil {
		return err
	}
	removed := strings.Fields(held[envRemoved])
	for _, m := range known {
		if id := memberID(m.ID); slices.Contains(m.PeerURLs, r.Etcd.PeerURL(r.Index)) && !slices.Contains(removed, id) {
			removed = append(removed, id)
		}
	}
	start := startOf(r.Etcd, noMember)
	start[envRemoved] = strings.Join(removed, " ")
	if err := r.Pods.SetMemberStart(ctx, r.Etcd, start); err != nil {
		return err
	}
	return r.withOthers(ctx, stepRemove, func(ctx context.Context, client *etcd.Client) error {
		for _, m := range known {
			if !slices.Contains(m.PeerURLs, r.Etcd.PeerURL(r.Index)) {
				continue
			}
			if err := client.Remove(ctx, m.ID); err != nil && !etcd.IsNotFound(err) {
				return err
			}
		}
		return disarmRemoved(ctx, client, removed)
	})
}

// disarmRemoved disarms the alarms that the data of removed members is corrupt: the others refuse all writes until
// then. All other alarms are kept: one that names no member can be about any of them, the alarm of a member
// that an administrator removed is theirs to judge, and a member that an interrupted run meant to remove can be there.
func disarmRemoved(ctx context.Context, client *etcd.Client, removed []string) error {
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	now, err := client.Members(ctx)
	if err != nil {
		return err
	}
	for _, a := range status.Alarms {
		is := func(m etcd.Member) bool { return m.ID == a.Member }
		if a.Type != etcd.AlarmCorrupt || !slices.Contains(removed, memberID(a.Member)) ||
			slices.ContainsFunc(now, is) {
			continue
		}
		if err := client.DisarmCorrupt(ctx, a.Member); err != nil {
			return err
		}
	}
	return nil
}

// empty deletes the data that the member still has under its old ID.
func (r *ReplaceMember) empty(ctx context.Context) error {
	err := r.Pods.EmptyMember(ctx, r.Etcd, r.pod())
	if err != nil && ctx.Err() != nil {
		return clierr.New(clierr.NotReady,
			"if the pod's node is gone for good, kubectl delete node releases the pod; then run the command again",
			"%s and its volume were deleted but still exist: %w", r.pod(), err)
	}
	return err
}

// add adds the member to the etcd, which must know it before it starts, and lets it start.
func (r *ReplaceMember) add(ctx context.Context) error {
	url := r.Etcd.PeerURL(r.Index)
	if err := r.withOthers(ctx, stepAdd, func(ctx context.Context, client *etcd.Client) error {
		now, err := client.Members(ctx)
		if err != nil || slices.ContainsFunc(now, func(m etcd.Member) bool { return slices.Contains(m.PeerURLs, url) }) {
			return err // it was added, and the answer was lost
		}
		return client.Add(ctx, url)
	}); err != nil {
		return err
	}
	return r.Pods.SetMemberStart(ctx, r.Etcd, startOf(r.Etcd, r.Index))
}

// withOthers calls do with the other members one after another until it succeeds. etcd rejects changes of its members
// for some seconds after one of them was disconnected.
func (r *ReplaceMember) withOthers(ctx context.Context, step string,
	do func(context.Context, *etcd.Client) error) error {
	connect, err := r.connector(r.state, r.Etcd)
	if err != nil {
		return err
	}
	return r.until(ctx, step, func() error {
		var err error
		for i := range r.Etcd.Replicas {
			if i == r.Index {
				continue
			}
			var client *etcd.Client
			if client, err = connect(r.Etcd.Member(i)); err != nil {
				return err
			}
			err = do(ctx, client)
			client.Close()
			if err == nil {
				return nil
			}
		}
		return err
	})
}

// join waits until the member has the data of the others, records its volume, and then removes the overrides of how
// members start. While there are overrides, the next run continues.
func (r *ReplaceMember) join(ctx context.Context, installed *record.Record) error {
	r.Step(stepJoin, run.Running, r.pod())
	err := r.until(ctx, stepJoin, func() error {
		s, err := r.ask(ctx, r.state, r.Etcd)
		if err != nil {
			return err
		}
		if m := s.members[r.Index]; !m.Healthy {
			return fmt.Errorf("%s: %s", m.Pod, m.Reason)
		}
		st, err := r.Runtime.State(ctx, r.Etcd)
		if err == nil && !st.Ready {
			return fmt.Errorf("%d/%d ready: %s", st.ReadyReplicas, st.Replicas, st.Reason)
		}
		return err
	})
	if err == nil {
		err = r.record(ctx, installed)
	}
	if err == nil {
		err = r.Pods.SetMemberStart(ctx, r.Etcd, nil)
	}
	if err != nil {
		return r.Fail(stepJoin, r.incomplete("it has not joined", err))
	}
	r.Step(stepJoin, run.Done, r.pod()+" is healthy and in sync with the other members")
	return nil
}

// until retries until it works or ctx ends, and reports why it does not work yet.
func (r *ReplaceMember) until(ctx context.Context, step string, try func() error) error {
	return poll.UntilWorks(ctx, 2*run.PollInterval, func(reason string) { r.Step(step, run.Running, reason) }, try)
}

// incomplete says what a replacement lacks that has ended early. A cause that has a hint says enough.
func (r *ReplaceMember) incomplete(missing string, err error) error {
	if errors.Is(err, context.Canceled) || clierr.Hint(err) != "" {
		return err
	}
	code := clierr.Code(err)
	if _, late := errors.AsType[*poll.Expired](err); late {
		code = clierr.NotReady
	}
	return clierr.New(code, "run the command again: it continues. To see why, run kcpctl logs "+string(r.Etcd.ID()),
		"%s is not replaced, because %s: %w", r.pod(), missing, err)
}

// startOf returns the variables with which members without data start: none of them can, except the one that joins. A
// member finds itself in the list by its name, and the others by their URLs.
func startOf(c *topology.Component, joins int32) map[string]string {
	var members []string
	for i := range c.Replicas {
		name := fmt.Sprintf("other-%d", i)
		if i == joins {
			name = c.Member(i)
		}
		members = append(members, name+"="+c.PeerURL(i))
	}
	return map[string]string{render.EnvInitialCluster: strings.Join(members, ","),
		render.EnvInitialClusterState: "existing"}
}

// reporter is not part of what callers set.
type reporter = run.Reporter
