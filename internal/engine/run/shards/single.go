package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/leader"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// moveEnd is a shard that logical clusters move from or to.
type moveEnd struct {
	shard *topology.Component
	// lock is for the fields below, and for the replicas of the shard.
	lock parallel.Lock
	// singled means that this run has stopped replicas of the shard, and led that the only replica leads.
	singled, led bool
	clients      *kcp.End
	// started is when the process of the only replica has started.
	started string
}

// end returns a shard as an end of a move. Of its replicas one is left.
func (m *mover) end(ctx context.Context, shard string, report func(string)) (kcp.End, error) {
	e := m.ends[shard]
	if e == nil {
		return kcp.End{}, fmt.Errorf("shard %q is not in the setup file", shard)
	}
	if err := e.lock.Lock(ctx); err != nil {
		return kcp.End{}, err
	}
	defer e.lock.Unlock()
	if err := m.single(ctx, e, report); err != nil {
		return kcp.End{}, err
	}
	if e.clients != nil {
		return *e.clients, nil
	}
	as := func(group string) (*kcp.Client, error) {
		return kcp.ConnectAs(m.runtime, e.shard, m.state, m.now(), group, pki.GroupExternalLogicalClusterAdmin)
	}
	masters, err := as(pki.GroupMasters)
	if err != nil {
		return kcp.End{}, err
	}
	client, err := as(pki.GroupAdmin)
	if err != nil {
		return kcp.End{}, err
	}
	if e.started, err = masters.Started(ctx); err != nil {
		return kcp.End{}, fmt.Errorf("%s: %w", e.shard.ID(), err)
	}
	e.clients = &kcp.End{Mover: masters, Client: client}
	return *e.clients, nil
}

// single leaves one replica of a shard until restoreReplicas: only the process that leads the replicas knows of a move,
// and gives the content that is moved.
func (m *mover) single(ctx context.Context, e *moveEnd, report func(string)) error {
	err := poll.Until(ctx, run.PollInterval, report, func() (string, error) {
		s, err := m.runtime.State(ctx, e.shard)
		switch {
		case err != nil:
			return "", err
		case e.shard.Autoscaled:
			return "", clierr.New(clierr.Failed,
				"set replicas: 1 for it in the setup file, run kcpctl up, and run the command again",
				"the setup leaves the replicas of %s to others, and kcp moves workspaces safely only from and to a "+
					"single one", e.shard.ID())
		case s.Replicas <= 1 && len(s.Pods) <= 1 && s.Ready:
			return "", m.lead(ctx, e, report)
		case s.Replicas <= 1, e.singled && s.Reason == ready.RolloutNotStarted: // the watch is behind
			return fmt.Sprintf("%s: %s", e.shard.ID(), run.WaitMessage(s)), nil
		case e.singled:
			return "", clierr.New(clierr.Failed,
				"stop what scales it, such as a HorizontalPodAutoscaler, and run the command again",
				"%s has %d replicas again, and kcp moves workspaces safely only from and to a single one",
				e.shard.ID(), s.Replicas)
		}
		e.singled = true
		return fmt.Sprintf("%s: stops all replicas but one, for the time of the moves", e.shard.ID()),
			m.runtime.Scale(ctx, e.shard, 1)
	})
	if late := (*poll.Expired)(nil); errors.As(err, &late) {
		return late.Cause
	}
	return err
}

// lead waits until the only replica of a shard leads.
func (m *mover) lead(ctx context.Context, e *moveEnd, report func(string)) error {
	if !leader.Has(e.shard) || e.led {
		return nil
	}
	client, err := m.connect(e.shard)
	if err != nil {
		return err
	}
	defer client.Close()
	say := func(reason string) { report(string(e.shard.ID()) + ": " + reason) }
	leader.HandOver(ctx, leader.Handover{
		Shard: e.shard, Client: client, State: m.runtime.State, Now: m.now, Report: say,
	})
	e.led = true
	return nil
}

// scaled reports whether this run has stopped replicas. No move is in progress.
func (m *mover) scaled() bool {
	for _, e := range m.ends {
		if e.singled {
			return true
		}
	}
	return false
}

// restoreReplicas starts the replicas again that moves have stopped, also in an interrupted run, except for removed
// shards. It does not wait for them. Of the shards that this run has scaled, the watch may be behind.
func (m *mover) restoreReplicas(ctx context.Context, removed ...string) {
	for _, c := range m.topology.Shards() {
		if c.Replicas <= 1 || slices.Contains(removed, c.ShardName()) {
			continue
		}
		s, err := m.runtime.State(ctx, c)
		if err == nil && (s.Replicas == 1 || m.ends[c.ShardName()].singled) {
			err = m.runtime.Scale(ctx, c, c.Replicas)
		}
		if err != nil {
			m.Note(fmt.Sprintf("%s runs one of %d replicas until the next up: %s", c.ID(),
				c.Replicas, run.FirstLine(err)))
		}
	}
}
