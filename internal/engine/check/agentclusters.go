package check

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// agentCluster is a cluster whose APIs agents may publish.
type agentCluster struct {
	asked interface {
		Versions(ctx context.Context, kind schema.GroupKind) ([]string, error)
		MayApplyClusterScoped(ctx context.Context, objects []render.Object) error
	}
	// has reports whether an agent publishes its APIs.
	has func(*topology.Component) bool
	// objects are those that up applies there.
	objects []render.Object
}

// eachAgentCluster runs a check on all clusters of the setup concurrently, and on the clusters whose APIs agents on
// this machine publish.
func eachAgentCluster(do func(context.Context, *Subject, agentCluster) outcome) func(context.Context,
	*Subject) outcome {
	ofSetup := eachCluster(func(ctx context.Context, s *Subject, c Cluster) outcome {
		return do(ctx, s, agentCluster{c,
			func(a *topology.Component) bool { return a.Cluster.Name == c.Name() }, s.on(c)})
	})
	return func(ctx context.Context, s *Subject) (o outcome) {
		all := s.facts.Services
		if len(all) == 0 {
			return ofSetup(ctx, s)
		}
		for i, found := range parallel.Map(len(all), all, func(p Physical) outcome {
			if _, o, ok := p.answers(ctx); !ok {
				return o
			}
			place := topology.OnServiceCluster(p.Name)
			return do(ctx, s, agentCluster{p.PhysicalCluster,
				func(a *topology.Component) bool { return a.Agent.ServicePlace == place }, s.at(place)})
		}) {
			o.absorb("cluster "+all[i].Name, found)
		}
		return o
	}
}

// at returns the objects of a place on a cluster that is not one of the setup's own. Where they are applied, they are
// objects of a cluster.
func (s *Subject) at(place string) []render.Object {
	var out []render.Object
	for _, o := range s.Objects {
		if o.Workspace == place {
			o.Workspace = ""
			out = append(out, o)
		}
	}
	return out
}

// answers asks who a cluster is. If it does not answer, that is a failure only if nothing was applied there yet.
func (p *Physical) answers(ctx context.Context) (identity string, o outcome, ok bool) {
	err := p.Err
	if err == nil {
		identity, err = p.Identity(ctx)
	}
	switch {
	case err == nil:
		return identity, o, true
	case p.Registered:
		o.warn("%s", reason(ctx, err))
	default:
		o.add(err)
	}
	return "", o, false
}
