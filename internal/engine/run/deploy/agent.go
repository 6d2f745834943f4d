package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// agentLogLines is how many lines of an agent's log are read for the reason why it does not publish.
const agentLogLines = 50

// publishes waits until an agent publishes its resources, accepts what the APIExport claims from its consumers, and
// waits until they can use the APIs, and the agent finds the objects of all of them: also the objects on a shard that
// had no consumer before, or did not answer.
func (r *rollout) publishes(ctx context.Context, c *topology.Component) error {
	if c.Replicas == 0 {
		return nil // it is paused
	}
	return r.throughProxy(func(proxy *kcp.Client) error { return r.publishesBy(ctx, c, proxy) },
		fmt.Sprintf("%s: no front-proxy can be reached, so it is not known whether it publishes its resources", c.ID()))
}

func (r *rollout) publishesBy(ctx context.Context, c *topology.Component, proxy *kcp.Client) error {
	a := &agentstate.Agent{Component: c, Runtime: r.Runtime, Proxy: proxy, Now: r.Now}
	if err := r.until(ctx, c, func() error { return r.withLog(ctx, c, a.Publishes(ctx)) }); err != nil {
		return err
	}
	if err := r.acceptClaims(ctx, c); err != nil {
		return err
	}
	if err := r.until(ctx, c, func() error { return a.Bound(ctx) }); err != nil {
		return err
	}
	if err := r.endpoints(ctx, proxy, c, c, c.Agent.Bind...); err != nil {
		return err
	}
	return r.watches(ctx, c, a)
}

// acceptClaims applies the APIBindings that this run has applied once more: an agent adds claims to its APIExport when
// it starts.
func (r *rollout) acceptClaims(ctx context.Context, c *topology.Component) error {
	bindings := slices.DeleteFunc(slices.Clone(r.changes.of[c.ID()].items), func(it plan.Item) bool {
		return it.GroupVersionKind != kcpapi.APIBinding.GroupVersionKind
	})
	if len(bindings) == 0 {
		return nil
	}
	options := r.Options.PlanOptions
	options.PKI = r.state
	return r.Runtime.Apply(ctx, bindings, options)
}

// withLog adds the last error that the agent has logged to the reason why it does not work.
func (r *rollout) withLog(ctx context.Context, c *topology.Component, reason error) error {
	if reason == nil {
		return nil
	}
	var log bytes.Buffer
	if err := r.Runtime.Logs(ctx, c, run.LogOptions{Tail: new(int64(agentLogLines))}, &log); err != nil {
		return reason
	}
	if last := LastAgentError(log.String()); last != "" {
		return fmt.Errorf("%w; the agent logs: %s", reason, last)
	}
	return reason
}

// LastAgentError returns the message of the last line of an agent's log with level error or fatal, or "". The lines are
// JSON (api-syncagent: internal/log); the lines of several pods begin with the names of the pods.
func LastAgentError(log string) string {
	lines := strings.Split(log, "\n")
	for _, line := range slices.Backward(lines) {
		_, object, ok := strings.Cut(line, "{")
		if !ok {
			continue
		}
		var entry struct{ Level, Msg, Message, Error string }
		if json.Unmarshal([]byte("{"+object), &entry) != nil {
			continue
		}
		if level := strings.ToLower(entry.Level); level != "error" && level != "fatal" {
			continue
		}
		text := entry.Msg + entry.Message
		if entry.Error != "" {
			text += ": " + entry.Error
		}
		return text
	}
	return ""
}
