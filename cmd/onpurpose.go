package cmd

import (
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// onPurpose are the options that do what a run refuses unless it is told.
type onPurpose struct {
	dataChange         []string
	releaseChange      bool
	replaceAuthorities bool
}

func (o *onPurpose) addPurposeFlags(c *cobra.Command, parts offer) {
	f := c.Flags()
	f.StringSliceVar(&o.dataChange, record.FlagDataChange, nil,
		"component that may leave the data that it has: it moves to another cluster, etcd or volume, or is not needed any more; may be repeated")
	o.addReleaseFlag(c)
	f.BoolVar(&o.replaceAuthorities, record.FlagReplaceAuthorities, false,
		"accept a PKI store with other certificate authorities or service-account keys than the ones in use")
	completeFlag(c, record.FlagDataChange, parts)
}

func (o *onPurpose) addReleaseFlag(c *cobra.Command) {
	c.Flags().BoolVar(&o.releaseChange, "allow-release-change", false, "accept a kcp release that skips a minor release, or is older than what runs")
}

// dataChanges are the components that --allow-data-change names.
func (o *onPurpose) dataChanges() []topology.ID {
	var out []topology.ID
	for _, name := range o.dataChange {
		out = append(out, topology.ID(name))
	}
	return out
}
