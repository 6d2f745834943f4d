package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
)

type backupListOptions struct {
	env    *Env
	from   string
	output string
}

func newBackupListCmd(env *Env) *cobra.Command {
	o := &backupListOptions{env: env}
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the backups in a directory",
		Example: "  kcpctl backup list --from ./backups",
		Args:    noArgs,
		RunE:    withoutArgs(o.run),
	}
	c.Flags().StringVar(&o.from, "from", "", "directory of the backups, or a bucket: s3://BUCKET/PREFIX")
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// backupList is the result in machineFormats.
type backupList struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Items      []*archive.Manifest `json:"items"`
	// Unusable is why others cannot be used, by name.
	Unusable map[string]string `json:"unusable,omitempty"`
}

func (o *backupListOptions) run(ctx context.Context) error {
	target, err := openTarget(o.env, "--from", o.from)
	if err != nil {
		return err
	}
	found, err := archive.List(ctx, target)
	if err != nil {
		return err
	}
	if o.output != "" {
		list := backupList{APIVersion: v1alpha1.APIVersion, Kind: "BackupList", Items: found.Complete,
			Unusable: map[string]string{}}
		for name, why := range found.Unusable {
			list.Unusable[name] = why.Error()
		}
		return encode(o.env.Streams.Out, o.output, list)
	}
	for _, name := range slices.Sorted(maps.Keys(found.Unusable)) {
		o.env.note(fmt.Sprintf("%s cannot be used: %s", name, found.Unusable[name]))
	}
	all := found.Complete
	if len(all) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "No backups found in %s.\n", target)
		return nil
	}
	var rows [][]string
	for _, m := range all {
		rows = append(rows, []string{m.Name, m.Installation, ui.Age(o.env.Now().Sub(m.Created)),
			strconv.Itoa(len(m.Databases)), strconv.Itoa(logicalClusters(m)), bytesize.Format(m.Bytes()),
			backupState(m)})
	}
	ui.Table(o.env.Streams.Out,
		[]string{"NAME", "INSTALLATION", "AGE", "SHARDS", "WORKSPACES", "SIZE", "STATE"}, rows...)
	return nil
}

// backupState says in a word or two whether a backup can bring back the whole installation.
func backupState(m *archive.Manifest) string {
	switch {
	case len(m.Partial) > 0:
		return "partial"
	case len(m.Doubtful()) > 0:
		return "doubtful"
	case len(m.Tears) > 0:
		return fmt.Sprintf("torn (%d)", len(m.Tears))
	case len(m.Recipients) == 0:
		return "without keys"
	}
	return "complete"
}

func logicalClusters(m *archive.Manifest) (n int) {
	for _, d := range m.Databases {
		n += d.LogicalClusters
	}
	return n
}
