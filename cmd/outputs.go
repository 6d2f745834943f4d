package cmd

import (
	"github.com/spf13/cobra"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

// Output is a result that programs read. Its JSON schema is generated from its type.
type Output struct {
	// Name is the value of kcpctl schema --output.
	Name string
	// Commands are the commands that print it.
	Commands string
	// Value is a value of its type.
	Value any
}

// Commands returns kcpctl with all its commands, for the documentation.
func Commands() *cobra.Command { return newRootCmd(&Env{Streams: System().Streams}) }

// Outputs are all results that programs read, in the order of the documentation.
func Outputs() []Output {
	return []Output{
		{"events", "up, down, add-shard and all others that change a setup: one event per line", run.Event{}},
		{"validate", "validate", validation{}},
		{"status", "status", status.Status{}},
		{"usage", "top", list[usage.Component]{}},
		{"storage", "top workspaces", partialList[usage.Workspace]{}},
		{"capacity", "capacity", list[usage.Capacity]{}},
		{"check", "check", check.Report{}},
		{"diff", "diff", differenceList{}},
		{"history", "history", list[plan.Revision]{}},
		{"certs", "certs list", pki.List{}},
		{"members", "etcd members", partialList[etcds.EtcdMember]{}},
		{"clusters", "cluster list", list[*api.Cluster]{}},
		{"apis", "workloads apis", list[apiState]{}},
		{"explanation", "workloads explain", explanation{}},
		{"moves", "workloads rebalance", list[compute.Move]{}},
		{"backups", "backup list", backupList{}},
		{"verification", "backup verify", verification{}},
		{"tears", "restore repair", tearList{}},
		{"version", "version", version.Info{}},
	}
}

func outputNames() []string {
	return mapped(Outputs(), func(o Output) string { return o.Name })
}
