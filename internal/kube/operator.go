package kube

import (
	"fmt"

	"github.com/kcpctl/kcpctl/internal/kube/adopt"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// OpenOperator finds an installation of kcp-operator in the namespace of a cluster. It sends no request.
func OpenOperator(c topology.Cluster, o Options) (*adopt.Installation, error) {
	return adopt.Open(c, o.single())
}

// single returns the options for a client of one cluster.
func (o Options) single() cluster.Options {
	return cluster.Options{
		API: o.API, As: o.As, AsGroups: o.AsGroups, Now: o.Now,
		Notify: func(format string, args ...any) {
			if o.Notify != nil {
				o.Notify(fmt.Sprintf(format, args...))
			}
		},
	}
}
