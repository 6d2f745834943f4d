package cmd

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

func dryRuns() []string { return []string{dryRunClient, dryRunServer, dryRunNone} }

// addDryRun adds --dry-run, which says that it shows what happens on the client, and what the server would change. Without a
// value it is the latter.
func addDryRun(c *cobra.Command, value *string, client string) {
	c.Flags().StringVar(value, "dry-run", dryRunNone, "client: "+client+", without a cluster; server: what would change; none")
	c.Flags().Lookup("dry-run").NoOptDefVal = dryRunServer
	completeFlag(c, "dry-run", these(dryRuns()...))
}

func checkDryRun(value string) error {
	if !slices.Contains(dryRuns(), value) {
		return clierr.New(clierr.BadInput, "use --dry-run=client or --dry-run=server", "unknown dry run %q", value)
	}
	return nil
}
