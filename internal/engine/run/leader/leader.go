// Package leader passes the lead of the replicas of a shard from one to the next.
package leader

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// patience is how long a leader may take to leave: its pod keeps serving for a while first.
const patience = 3 * time.Minute

// Has reports whether one of a component's replicas leads the others.
func Has(c *topology.Component) bool { return c.IsShard() && !c.Storage.Embedded }

// Handover is what HandOver needs.
type Handover struct {
	Shard  *topology.Component
	Client *kcp.Client
	State  func(context.Context, *topology.Component) (ready.State, error)
	Now    func() time.Time
	Report func(message string)
}

// HandOver lets the next leader of a shard's replicas start as soon as the previous one has ended, and returns the
// leader. kcp's leaders do not release their lease, so the next one would wait a minute for its end (kcp:
// pkg/server/server.go, LeaseDuration): a minute in which no workspace becomes Ready. Once the leader's pod is gone
// and its lease is not renewed, kcpctl releases the lease for it. The same holds for a shard that starts again after
// its pods were deleted. A leader whose pod has another name than its host, but which renews its lease, is left
// alone. It returns nothing if it does not know the leader in time: the lease ends anyway.
func HandOver(parent context.Context, h Handover) (pod string) {
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	reported := ""
	var gone kcp.Leader // the leader without a pod, and since when it has not renewed its lease
	var since time.Time
	for {
		leader, err := h.Client.Leader(ctx)
		state, stateErr := h.State(ctx, h.Shard)
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
			gone, since = leader, h.Now()
		case leader.Version != gone.Version:
			return "" // it renews its lease: the pod has another name than its host
		case h.Now().Sub(since) >= kcp.RenewDeadline && h.Client.Release(ctx, leader) == nil:
			message = leader.Host + " is gone" // the next leader may be a pod that is terminating too
		}
		if message != "" && message != reported {
			reported = message
			h.Report(message)
		}
		if poll.Pause(ctx, 4*run.PollInterval) != nil {
			return ""
		}
	}
}
