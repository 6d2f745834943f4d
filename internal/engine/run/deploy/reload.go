package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// reloadTime is how long a process may use files that have changed since. client-go reads a client certificate
	// every five minutes, and the file of a CA before a request if it has not read it for five minutes (client-go
	// v0.36: transport/cert_rotation.go, CertCallbackRefreshDuration; transport/ca_rotation.go, caRefreshDuration).
	reloadTime = 5 * time.Minute
	// mountTime is how long the files of a pod may differ from its Secrets. The kubelet updates them when it syncs the
	// pod: every minute, and up to half of that later (kubernetes v1.36: pkg/kubelet/pod_workers.go,
	// workerResyncIntervalJitterFactor).
	mountTime = 90 * time.Second

	stepReload = "certificates in use"
)

// reloaded waits until all processes that read their files again use the certificates and authorities of the current
// phase. Otherwise the next phase would cut off those that still use earlier ones: nothing restarts them.
func (r *Rotate) reloaded(ctx context.Context, which pki.Rotations) error {
	readers := r.readers(which)
	if r.Up == nil || r.Show != nil || len(readers) == 0 {
		return nil
	}
	known, err := r.Up.Runtime.Record(ctx)
	if err != nil {
		return err
	}
	left := r.reloading(known.AuthoritiesApplied)
	if left <= 0 {
		return nil
	}
	defer r.Begin("wait until all components use the new certificates")()
	r.Up.Step(stepReload, run.Running, fmt.Sprintf("%s: changed files are read again within %s, which ends at %s UTC",
		gather.Few(run.Names(readers), gather.Listed, ", "), short(r.reloadsWithin()),
		r.Now().Add(left).UTC().Format(time.TimeOnly)))
	if err := poll.Pause(ctx, left); err != nil {
		return err
	}
	r.Up.Step(stepReload, run.Done, "all files are read")
	return nil
}

// readers returns the components that run, read their files again, and use certificates or authorities that are
// rotated.
func (r *Rotate) readers(which pki.Rotations) []topology.ID {
	var out []topology.ID
	for _, c := range r.Topology.Components {
		if c.Kind.Reloads() && c.Replicas > 0 &&
			slices.ContainsFunc(r.Topology.EdgesFrom(c), func(e topology.Edge) bool {
				return which.Has(e.Trust) || which.Has(e.Accept)
			}) {
			out = append(out, c.ID())
		}
	}
	return out
}

// reloading returns how long processes may still use what was valid before the current phase was applied. If it is not
// known when that was, it may have been a moment ago; a time in the future is from another clock.
func (r *Rotate) reloading(applied time.Time) time.Duration {
	if applied.IsZero() {
		return r.reloadsWithin()
	}
	return min(r.reloadsWithin()-r.Now().Sub(applied), r.reloadsWithin())
}

// reloadsWithin returns the time within which processes read files that have changed.
func (r *Rotate) reloadsWithin() time.Duration {
	if r.Topology.Local() {
		return reloadTime
	}
	return reloadTime + mountTime
}

// short returns a duration without zero seconds: 5m.
func short(d time.Duration) string {
	if text, whole := strings.CutSuffix(d.String(), "m0s"); whole {
		return text + "m"
	}
	return d.String()
}
