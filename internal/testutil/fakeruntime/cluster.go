package fakeruntime

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/check"
)

// Cluster is a cluster on which all checks pass, unless the test sets what it answers.
type Cluster struct {
	// Permissions, ClusterScoped and Admission answer MayApply, MayApplyClusterScoped and Admit for some objects. Nil
	// allows everything.
	Permissions, ClusterScoped, Admission func(objects []render.Object) error
	// Secrets are the Secrets of the user, by name.
	Secrets map[string]map[string][]byte
	// Reached answers Reach for an address. Nil: every address answers.
	Reached func(address string) (check.Answer, error)
	// Probed is the template of the pods that the last call of Reach asked with.
	Probed corev1.PodTemplateSpec
	// Label is the cluster's name. Default: that of the only cluster of a setup.
	Label string
	// Kinds are the versions of the kinds that it serves. Nil: every kind is served in v1.
	Kinds map[schema.GroupKind][]string
	// Nodes are the nodes by architecture. Nil is a node that kcp's image is built for.
	Nodes map[string]int
}

// Name is Label.
func (c *Cluster) Name() string { return cmp.Or(c.Label, "default") }

// Hello returns a supported version and a correct clock.
func (c *Cluster) Hello(context.Context) (string, time.Duration, error) { return "v1.36.0", 0, nil }

// MayApply returns what Permissions says.
func (c *Cluster) MayApply(_ context.Context, objects []render.Object) error {
	return answer(c.Permissions, objects)
}

// MayApplyClusterScoped returns what ClusterScoped says.
func (c *Cluster) MayApplyClusterScoped(_ context.Context, objects []render.Object) error {
	return answer(c.ClusterScoped, objects)
}

// Admit returns what Admission says.
func (c *Cluster) Admit(_ context.Context, objects []render.Object) error {
	return answer(c.Admission, objects)
}

func answer(ask func([]render.Object) error, objects []render.Object) error {
	if ask == nil {
		return nil
	}
	return ask(objects)
}

// References finds everything.
func (c *Cluster) References(context.Context, []render.Object) error { return nil }

// Serves serves everything.
func (c *Cluster) Serves(context.Context, []render.Object) error { return nil }

// Versions returns those of Kinds.
func (c *Cluster) Versions(_ context.Context, kind schema.GroupKind) ([]string, error) {
	if c.Kinds == nil {
		return []string{"v1"}, nil
	}
	if c.Kinds[kind] == nil {
		return nil, fmt.Errorf("%s is not served", kind)
	}
	return c.Kinds[kind], nil
}

// Secret returns one of Secrets.
func (c *Cluster) Secret(_ context.Context, name string) (map[string][]byte, error) {
	return c.Secrets[name], nil
}

// StorageClasses returns a default class.
func (c *Cluster) StorageClasses(context.Context) ([]string, int, error) {
	return []string{"standard"}, 1, nil
}

// Quotas returns none.
func (c *Cluster) Quotas(context.Context) ([]corev1.ResourceQuota, error) { return nil, nil }

// Running returns nothing.
func (c *Cluster) Running(context.Context) ([]string, []map[string]string, error) {
	return nil, nil, nil
}

// Architectures returns Nodes.
func (c *Cluster) Architectures(context.Context) (map[string]int, error) {
	if c.Nodes == nil {
		return map[string]int{"amd64": 1}, nil
	}
	return c.Nodes, nil
}

// Occupied finds no port in use.
func (c *Cluster) Occupied(context.Context, []render.Object) error { return nil }

// Reach returns what Reached says, and sets Probed.
func (c *Cluster) Reach(_ context.Context, p check.Probe) ([]check.Answer, error) {
	out := make([]check.Answer, len(p.Addresses))
	c.Probed = p.Pod
	for i, a := range p.Addresses {
		out[i] = check.Answer{Reach: check.Answers}
		if c.Reached == nil {
			continue
		}
		var err error
		if out[i], err = c.Reached(a.Address); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Network is a network in which every host resolves and none answers.
type Network struct{}

// LookupHost returns an address.
func (Network) LookupHost(context.Context, string) ([]string, error) {
	return []string{"192.0.2.1"}, nil
}

// DialTLS fails.
func (Network) DialTLS(context.Context, string, *tls.Config) (*tls.Conn, error) {
	return nil, errors.New("connection refused")
}
