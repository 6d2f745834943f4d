package run

import (
	"context"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// leaderPatience is how long a leader may take to leave: its pod serves on for a while first.
const leaderPatience = 3 * time.Minute

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
	step, reported := fmt.Sprintf("leader of %s", c.ID()), ""
	for {
		leader, err := client.Leader(ctx)
		state, stateErr := u.Runtime.State(ctx, c)
		stays, there := state.Pods[leader.Host]
		message := ""
		switch {
		case err != nil || stateErr != nil:
			// The connection may have been one to a pod that leaves.
		case stays || !leader.Elected:
			if reported != "" {
				u.step(step, Done, leader.Host)
			}
			return nil
		case there:
			message = leader.Host + " is on its way out"
		case leader.Host != "" && client.Release(ctx, leader) == nil:
			message = leader.Host + " has left" // another that is about to leave may be the next
		}
		if message != "" && message != reported {
			reported = message
			u.step(step, Running, message)
		}
		select {
		case <-ctx.Done():
			if reported != "" && run.Err() == nil {
				u.step(step, Done, reported+"; the next one begins when its lease ends")
			}
			return nil
		case <-time.After(4 * pollInterval):
		}
	}
}
