package run

import (
	"context"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// leaderPatience is how long a leader may take to leave. By then the next one leads without help.
const leaderPatience = time.Minute

// hasLeader tells whether one of a component's replicas leads the others.
func hasLeader(c *topology.Component) bool { return c.IsShard() && !c.Storage.Embedded }

// handOver lets the next leader of a shard's replicas begin as soon as the former one has ended. Leaders do not give back
// the lease that makes them so, and the next one would wait a minute for its end (kcp: pkg/server/server.go, LeaseDuration):
// a minute in which no workspace becomes Ready. Once its pod is gone, kcpctl gives it back in its place. It never fails: the
// lease ends anyhow.
func (u *Up) handOver(ctx context.Context, c *topology.Component, s *pki.State) error {
	client, err := Connect(u.Runtime, c, s, u.Now())
	if err != nil {
		return nil
	}
	run := ctx
	ctx, cancel := context.WithTimeout(run, leaderPatience)
	defer cancel()
	step, leaving := fmt.Sprintf("leader of %s", c.ID()), ""
	for {
		leader, err := client.Leader(ctx)
		state, stateErr := u.Runtime.State(ctx, c)
		stays, there := state.Pods[leader.Host]
		switch {
		case err != nil || stateErr != nil:
			// The connection may have been one to a pod that leaves.
		case leader.Host == "" || stays:
			return nil
		case there && leaving == "":
			leaving = leader.Host
			u.step(step, Running, leader.Host+" is on its way out")
		case !there && client.Release(ctx, leader) == nil:
			u.step(step, Done, leader.Host+" has left, the next one begins")
			return nil
		}
		select {
		case <-ctx.Done():
			if leaving != "" && run.Err() == nil {
				u.step(step, Done, "the next one begins when the lease of "+leaving+" ends")
			}
			return nil
		case <-time.After(4 * pollInterval):
		}
	}
}
