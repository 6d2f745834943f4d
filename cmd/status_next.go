package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// nextStep is a reason why a setup is not as it should be, and the command that repairs it.
type nextStep struct {
	reason  string
	applies func(*status.Status) bool
	command func(*status.Status) string
}

// nextSteps are all reasons. The first one that applies decides, so what prevents the others from being repaired comes
// first. The last one always applies.
func (o *statusOptions) nextSteps() []nextStep {
	run := func(name string) func(*status.Status) string {
		return func(*status.Status) string { return o.setup.command(name) }
	}
	return []nextStep{
		{"a run is in progress", func(st *status.Status) bool { return st.Run != nil }, run("status --watch")},
		{"a restore has not finished", func(st *status.Status) bool { return st.Restoring != "" },
			func(st *status.Status) string { return o.setup.command("restore DIR/" + st.Restoring) }},
		{"the PKI store does not belong to the installation",
			func(st *status.Status) bool { return st.PKIProblem != "" }, run("certs import DIR")},
		{"never installed", func(st *status.Status) bool { return st.State == status.NotInstalled }, run("up")},
		{"stopped", func(st *status.Status) bool { return st.State == status.Stopped }, run("up")},
		{"a rotation was interrupted", func(st *status.Status) bool { return incomplete(st) != nil },
			func(st *status.Status) string { return incomplete(st).Next }},
		{"the last run has not finished", func(st *status.Status) bool { return st.LastRun != nil },
			func(st *status.Status) string { return o.setup.command(completion(st.LastRun.Command)) }},
		{"a component has its own command", func(st *status.Status) bool { return ownNext(st) != "" }, ownNext},
		{"the key of an authority is lost",
			func(st *status.Status) bool { return st.LostKeys != "" }, run("certs import DIR")},
		{"a certificate has expired", func(st *status.Status) bool {
			return !st.NextExpiry.IsZero() && st.NextExpiry.Before(o.env.Now())
		}, run("up")},
		{"workspaces are being moved", func(st *status.Status) bool { return len(st.Moves) > 0 },
			func(st *status.Status) string {
				return o.setup.command(strings.TrimPrefix(st.Moves[0].Command(), "kcpctl "))
			}},
		{"objects or processes are missing", func(st *status.Status) bool {
			return st.Drift != nil && *st.Drift > 0 || o.setup.local.enabled && slices.ContainsFunc(st.Components,
				func(c status.Component) bool { return c.Stuck })
		}, run("up")},
		{"a cluster cannot be reached", func(st *status.Status) bool {
			return slices.ContainsFunc(st.Clusters, func(c status.Cluster) bool { return c.Unreachable != "" })
		}, run("check --pre")},
		{"something else", func(*status.Status) bool { return true }, run("check")},
	}
}

// nextCommand returns the command that repairs a setup that is not ready, or completes the last run. It is empty for a
// setup that is ready and has no unfinished run.
func (o *statusOptions) nextCommand(st *status.Status) string {
	if st.Ready && st.LastRun == nil {
		return ""
	}
	for _, s := range o.nextSteps() {
		if s.applies(st) {
			return s.command(st)
		}
	}
	return ""
}

// incomplete returns a rotation that was interrupted, or nil.
func incomplete(st *status.Status) *status.Rotation {
	i := slices.IndexFunc(st.Rotations, func(r status.Rotation) bool { return r.Incomplete })
	if i < 0 {
		return nil
	}
	return &st.Rotations[i]
}

// ownNext is the command that repairs a component.
func ownNext(st *status.Status) string {
	for _, c := range st.Components {
		if !c.Well() && c.Next != "" {
			return c.Next
		}
	}
	return ""
}

// completion is the command that completes a run, without kcpctl and without flags that it does not need: runs that
// remove or move something are repeated, and up completes all others.
func completion(command string) string {
	command = strings.TrimPrefix(command, "kcpctl ")
	for _, repeated := range []string{"down", "remove-shard", "cluster remove", "move", "rebalance",
		"etcd replace-member"} {
		if command == repeated || strings.HasPrefix(command, repeated+" ") {
			return command
		}
	}
	return "up"
}

// setNextCommands sets the commands that continue the rotations in progress, and the next one of the whole setup. Only
// a complete rotation can be finished. Another run that has not finished comes first: a rotation does not apply edits
// of the setup file.
func (o *statusOptions) setNextCommands(st *status.Status) {
	for i, r := range st.Rotations {
		st.Rotations[i].Next = o.setup.rotateCommand(r.Rotations)
		if last := st.LastRun; r.Incomplete && last != nil && last.Command != "" &&
			!strings.HasPrefix(last.Command, "kcpctl certs rotate-") && !r.OfEncryption() {
			st.Rotations[i].Next = o.setup.command(completion(last.Command))
		}
		if r.Phase == pki.PhaseSwitch && !r.Incomplete && !r.OfServiceAccount() && !r.OfEncryption() {
			st.Rotations[i].Next += " --finish"
		}
	}
	for _, next := range []*string{&st.PKINext, &st.LostKeysNext} {
		*next = o.env.nextSteps(*next)
	}
	for i := range st.Clusters {
		st.Clusters[i].Next = o.env.nextSteps(st.Clusters[i].Next)
	}
	for i := range st.Components {
		st.Components[i].Next = o.env.nextSteps(st.Components[i].Next)
	}
	st.Next = o.nextCommand(st)
}

// progress is the progress of a rotation, or what its phase means.
func progress(r status.Rotation) string {
	switch {
	case r.Done != nil:
		return fmt.Sprintf("%s: %d of %s", r.Phase, r.Done.Count, gather.Count(r.Done.Of, "component", "components"))
	case r.Incomplete:
		return string(r.Phase) + ": not complete"
	}
	return "phase " + string(r.Phase) + ", " + phaseMeaning(r.Rotations, r.Phase)
}
