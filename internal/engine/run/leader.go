package run

import (
	"context"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// leaderPatience is how long a leader may take to leave: its pod keeps serving for a while first.
const leaderPatience = 3 * time.Minute

// hasLeader reports whether one of a component's replicas leads the others.
func hasLeader(c *topology.Component) bool { return c.IsShard() && !c.Storage.Embedded }

// handOver reports as a step how the lead of a shard's replicas passes to the next one. It never fails.
func (r *rollout) handOver(ctx context.Context, c *topology.Component) {
	client, err := r.connect(c)
	if err != nil {
		return
	}
	defer client.Close()
	step, reported := fmt.Sprintf("leader of %s", c.ID()), ""
	report := func(message string) { reported = message; r.step(step, Running, message) }
	leader := handOver(ctx, handover{c, client, r.Runtime.State, r.Now, report})
	switch {
	case reported == "":
	case leader != "":
		r.step(step, Done, leader)
	case ctx.Err() == nil:
		r.step(step, Done, reported+"; the next leader starts when its lease ends")
	}
}

// handover is what handOver needs.
type handover struct {
	shard  *topology.Component
	client *kcp.Client
	state  func(context.Context, *topology.Component) (ready.State, error)
	now    func() time.Time
	report func(message string)
}

// handOver lets the next leader of a shard's replicas start as soon as the previous one has ended, and returns the
// leader. kcp's leaders do not release their lease, so the next one would wait a minute for its end (kcp:
// pkg/server/server.go, LeaseDuration): a minute in which no workspace becomes Ready. Once the leader's pod is gone
// and its lease is not renewed, kcpctl releases the lease for it. The same holds for a shard that starts again after
// its pods were deleted. A leader whose pod has another name than its host, but which renews its lease, is left
// alone. It returns nothing if it does not know the leader in time: the lease ends anyway.
func handOver(run context.Context, h handover) (pod string) {
	ctx, cancel := context.WithTimeout(run, leaderPatience)
	defer cancel()
	reported := ""
	var gone kcp.Leader // the leader without a pod, and since when it has not renewed its lease
	var since time.Time
	for {
		leader, err := h.client.Leader(ctx)
		state, stateErr := h.state(ctx, h.shard)
		stays, exists := state.Pods[leader.Host]
		message := ""
		switch {
		case err != nil || stateErr != nil:
			// The connection may have been to a pod that is ending.
		case stays || !leader.Elected:
			return leader.Host
		case exists:
			message = leader.Host + " is terminating"
		case leader.Host == "": // the next one will lead soon
		case leader.Host != gone.Host:
			gone, since = leader, h.now()
		case leader.Version != gone.Version:
			return "" // it renews its lease: the pod has another name than its host
		case h.now().Sub(since) >= kcp.RenewDeadline && h.client.Release(ctx, leader) == nil:
			message = leader.Host + " is gone" // the next leader may be a pod that is terminating too
		}
		if message != "" && message != reported {
			reported = message
			h.report(message)
		}
		if poll.Pause(ctx, 4*pollInterval) != nil {
			return ""
		}
	}
}
