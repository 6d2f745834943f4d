package check_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
)

// physicalCluster is a cluster of spec.workloads.
type physicalCluster struct {
	identity string
	err      error
	// refused is the answer if there are objects to apply.
	refused error
}

func (p physicalCluster) Identity(context.Context) (string, error) { return p.identity, p.err }

func (p physicalCluster) Versions(context.Context, schema.GroupKind) ([]string, error) {
	return nil, p.err
}

func (p physicalCluster) MayApplyClusterScoped(_ context.Context, objects []render.Object) error {
	for _, o := range objects {
		if o.Workspace != "" || o.GetNamespace() != "" || o.GetKind() == "Namespace" {
			return errors.New("not an object without a namespace: " + o.GetName())
		}
	}
	if len(objects) == 0 {
		return errors.New("nothing to apply")
	}
	return p.refused
}

func TestPhysicalClustersCanBeRegistered(t *testing.T) {
	lost, refused := errors.New("connection refused"), errors.New("not allowed: create clusterroles")
	at := func(p physicalCluster) check.Physical { return check.Physical{PhysicalCluster: p} }
	known := at(physicalCluster{err: lost})
	known.Registered = true
	same := "cluster/c2: cluster/c1 is the same cluster: their namespaces kube-system have the same UID"
	for name, tc := range map[string]struct {
		c1, c2 check.Physical
		only   []topology.ID
		status check.Status
		cause  string
	}{
		"well":                           {at(physicalCluster{identity: "1"}), at(physicalCluster{identity: "2"}), nil, check.OK, ""},
		"not allowed":                    {at(physicalCluster{refused: refused}), at(physicalCluster{}), nil, check.Fail, "cluster/c1: " + refused.Error()},
		"the same cluster":               {at(physicalCluster{identity: "1"}), at(physicalCluster{identity: "1"}), nil, check.Fail, same},
		"no context":                     {check.Physical{Err: errors.New("no context eu")}, at(physicalCluster{identity: "1"}), nil, check.Fail, "cluster/c1: no context eu"},
		"a new one that does not answer": {at(physicalCluster{err: lost}), at(physicalCluster{identity: "1"}), nil, check.Fail, "cluster/c1: connection refused"},
		"one that is lost":               {known, at(physicalCluster{identity: "1"}), nil, check.Warn, "cluster/c1: connection refused"},
		"one that the run leaves alone":  {at(physicalCluster{err: lost}), at(physicalCluster{identity: "1"}), []topology.ID{"cluster/c2"}, check.OK, ""},
		"the same as one that the run leaves alone": {
			at(physicalCluster{identity: "1", refused: refused}), at(physicalCluster{identity: "1"}), []topology.ID{"cluster/c2"}, check.Fail, same,
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, "  workloads: {clusters: [{name: c1}, {name: c2, context: c2}]}\n")
			objects, err := render.Objects(top, pkitest.Issue(t, top, time.Now()))
			require.NoError(t, err)
			rt := fakeruntime.New(t, top)
			tc.c1.Name, tc.c2.Name = "c1", "c2"
			rt.Place.Physical = []check.Physical{tc.c1, tc.c2}
			c, ok := check.Find("KCP051")
			require.True(t, ok)
			r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: rt, Objects: objects, Now: time.Now, Only: tc.only}, []check.Check{c})
			require.Equal(t, tc.status, r.Results[0].Status)
			require.Equal(t, tc.cause, r.Results[0].Cause)
		})
	}
}
