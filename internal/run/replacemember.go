package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/etcd"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The steps of a replacement.
const (
	stepMembers = "members"
	stepRemove  = "remove member"
	stepEmpty   = "empty volume"
	stepAdd     = "add member"
	stepJoin    = "join"
)

// nobody is the index of no member.
const nobody = -1

// ReplaceMember gives a managed etcd another member in the place of one that has lost its data. The others serve meanwhile. A
// replacement that was interrupted is continued by another one: it begins again, which costs nothing but time.
type ReplaceMember struct {
	Members
	// Etcd is the etcd, Index the number of the member.
	Etcd  *topology.Component
	Index int32
	// Observe is told of the steps.
	Observe Observer
	// Timeout limits the whole replacement; 0 is none.
	Timeout time.Duration

	state *pki.State
}

// CheckReplaceable refuses an etcd of which no member can be replaced.
func CheckReplaceable(c *topology.Component) error {
	if c.Replicas > 1 {
		return nil
	}
	return clierr.New(clierr.Failed, "restore a snapshot or a backup of its volume",
		"%s has one member: nothing else has its data, so there is nothing that another member could be filled from", c.ID())
}

// Run replaces the member.
//
// An etcd knows its members by IDs. One that has lost its data must never come back under the ID that it had: the others
// count on what it has forgotten. So it is removed, and added under another ID. It is added as a voter: after the removal
// the others are as many as a majority needs with it or without it, so that a learner would be no safer, and would not
// vote if nothing was left to promote it.
//
// Meanwhile the pod starts again and again. What it must not do is to start without data before it has been added: it would
// take itself for a member of a new etcd. So first of all a start without data is made impossible for every member, then
// it is allowed for this one.
func (r *ReplaceMember) Run(ctx context.Context) error {
	if err := CheckReplaceable(r.Etcd); err != nil {
		return err
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, errTimeout{r.Timeout})
		defer cancel()
	}
	err := Locked(ctx, r.Runtime, r.replace)
	if errors.Is(err, ErrNoPlace) {
		return clierr.New(clierr.Failed, "kcpctl up makes the etcd", "%w", err)
	}
	return err
}

func (r *ReplaceMember) replace(ctx context.Context) error {
	installed, state, err := loadOwn(ctx, r.Runtime)
	if err != nil {
		return err
	}
	if d, ok := installed.Data[r.Etcd.ID()]; ok && d.Members != int64(r.Etcd.Replicas) {
		return clierr.New(clierr.Failed, "set the number of members in the setup file back", "%s has %d members, and the setup wants %d",
			r.Etcd.ID(), d.Members, r.Etcd.Replicas)
	}
	r.state = state
	known, done, err := r.survey(ctx)
	if err != nil {
		return r.fail(stepMembers, err)
	}
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{
		{stepRemove, func(ctx context.Context) error { return r.remove(ctx, known) }},
		{stepEmpty, r.empty},
		{stepAdd, r.add},
	} {
		if done {
			break
		}
		r.step(s.name, Running, r.pod())
		if err := s.do(ctx); err != nil {
			return r.fail(s.name, err)
		}
		r.step(s.name, Done, r.pod())
	}
	return r.join(ctx)
}

func (r *ReplaceMember) pod() string { return r.Etcd.Member(r.Index) }

// survey looks whether the member can and has to be replaced. It is done if an earlier run came so far that only its traces
// are left.
func (r *ReplaceMember) survey(ctx context.Context) (known []etcd.Member, done bool, err error) {
	r.step(stepMembers, Running, "")
	s, err := r.ask(ctx, r.state, r.Etcd)
	if err != nil {
		return nil, false, err
	}
	if s.members[r.Index].Healthy {
		env, err := r.Pods.MemberStart(ctx, r.Etcd)
		if err != nil || env != nil {
			return nil, err == nil, err
		}
		return nil, false, clierr.New(clierr.Failed, "kcpctl etcd members shows how each is", "%s is healthy: it is not replaced", r.pod())
	}
	if s.healthy() <= int(r.Etcd.Replicas)/2 || len(s.known) == 0 {
		return nil, false, noMajority(r.Etcd, s)
	}
	r.step(stepMembers, Done, fmt.Sprintf("%d of %d are healthy; %s: %s", s.healthy(), r.Etcd.Replicas, r.pod(), s.members[r.Index].Reason))
	return s.known, false, nil
}

// remove removes the member under the ID that it has, and what an interrupted run may have added.
func (r *ReplaceMember) remove(ctx context.Context, known []etcd.Member) error {
	if err := r.Pods.SetMemberStart(ctx, r.Etcd, startOf(r.Etcd, nobody)); err != nil {
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
		return nil
	})
}

// empty takes the data away that the member still has under the ID that it had.
func (r *ReplaceMember) empty(ctx context.Context) error {
	err := r.Pods.EmptyMember(ctx, r.Etcd, r.pod())
	if err != nil && ctx.Err() != nil {
		return clierr.New(clierr.NotReady,
			"if the pod's node is gone for good, kubectl delete node lets the pod go; then run the same command again",
			"%s and its volume were deleted and are still there: %w", r.pod(), err)
	}
	return err
}

// add announces the member, which has to be known before it starts, and lets it start.
func (r *ReplaceMember) add(ctx context.Context) error {
	url := r.Etcd.PeerURL(r.Index)
	if err := r.withOthers(ctx, stepAdd, func(ctx context.Context, client *etcd.Client) error {
		now, err := client.Members(ctx)
		if err != nil || slices.ContainsFunc(now, func(m etcd.Member) bool { return slices.Contains(m.PeerURLs, url) }) {
			return err // an answer that was lost
		}
		return client.Add(ctx, url)
	}); err != nil {
		return err
	}
	return r.Pods.SetMemberStart(ctx, r.Etcd, startOf(r.Etcd, r.Index))
}

// withOthers asks the other members one after another until one does what is wanted. They refuse changes for some seconds
// after one of them was out of touch.
func (r *ReplaceMember) withOthers(ctx context.Context, step string, do func(context.Context, *etcd.Client) error) error {
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

// join waits until the member has what the others have, and then lets members start as they always do.
func (r *ReplaceMember) join(ctx context.Context) error {
	r.step(stepJoin, Running, r.pod())
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
		err = r.Pods.SetMemberStart(ctx, r.Etcd, nil)
	}
	if err != nil {
		return r.fail(stepJoin, err)
	}
	r.step(stepJoin, Done, r.pod()+" is healthy and has what the others have")
	return nil
}

// until tries until it works or ctx ends, reporting the reason why not.
func (r *ReplaceMember) until(ctx context.Context, step string, try func() error) error {
	reported := ""
	for {
		err := try()
		if err == nil {
			return nil
		}
		if msg := firstLine(err); ctx.Err() == nil && msg != reported {
			reported = msg
			r.step(step, Running, msg)
		}
		select {
		case <-ctx.Done():
			return clierr.New(clierr.NotReady, "run the same command again; kcpctl logs "+string(r.Etcd.ID())+" shows what the members say",
				"%w: %s", context.Cause(ctx), reported)
		case <-time.After(2 * pollInterval):
		}
	}
}

// startOf says how members without data start: all refuse to, but for one that joins the others. A member finds itself in
// the list by its name, and the others by their URLs.
func startOf(c *topology.Component, joins int32) map[string]string {
	var members []string
	for i := range c.Replicas {
		name := fmt.Sprintf("other-%d", i)
		if i == joins {
			name = c.Member(i)
		}
		members = append(members, name+"="+c.PeerURL(i))
	}
	return map[string]string{render.EnvInitialCluster: strings.Join(members, ","), render.EnvInitialClusterState: "existing"}
}

func (r *ReplaceMember) step(name string, s Status, msg string) {
	r.Observe(Event{Time: r.Now(), Scope: Step, Name: name, Status: s, Message: msg})
}

func (r *ReplaceMember) fail(step string, err error) error {
	r.step(step, Failed, firstLine(err))
	return err
}
