package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// selfValidity is how long the certificates are valid with which kcpctl itself calls kcp.
const selfValidity = time.Hour

// Connect returns a client of a component, as an administrator: system:masters on a shard; front-proxies strip that group,
// so there system:kcp:admin, the strongest that they let pass.
func Connect(rt Runtime, c *topology.Component, s *pki.State, now time.Time) (*kcp.Client, error) {
	group := pki.GroupMasters
	if c.Kind == topology.FrontProxy {
		group = pki.GroupAdmin
	}
	pair, err := pki.Mint(s, pki.MintSpec{
		CN: pki.CNSelf, Orgs: []string{group}, Algorithm: v1alpha1.KeyECDSAP256, Validity: selfValidity,
	}, now)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", c.ID(), err)
	}
	return kcp.New(kcp.Options{
		URL: c.URLFrom(c.Cluster), CA: s.CAs[pki.ServerCA].Trusted(), Pair: pair,
		Dial: func(ctx context.Context) (net.Conn, error) { return rt.Dial(ctx, c) },
	}), nil
}

// gate asks a component itself whether it serves, and a shard's registration with the root shard.
func (u *Up) gate(ctx context.Context, c *topology.Component, s *pki.State) error {
	switch c.Kind {
	case topology.Base, topology.Etcd:
		return nil
	case topology.Kubeconfig:
		return u.bindRoles(ctx, c, s)
	}
	client, err := Connect(u.Runtime, c, s, u.Now())
	if err != nil {
		return err
	}
	if err := u.until(ctx, c, func() error { return client.Ready(ctx) }); err != nil || !c.IsShard() {
		return err
	}
	root, err := Connect(u.Runtime, u.Topology.Root(), s, u.Now())
	if err != nil {
		return err
	}
	return u.until(ctx, c, func() error {
		shard, err := registered(ctx, root, c)
		if err != nil {
			return err
		}
		return root.SetLabels(ctx, shard, c.ShardLabels)
	})
}

// registered returns a shard as kcp has it, or why it is not registered as the topology wants it.
func registered(ctx context.Context, root *kcp.Client, c *topology.Component) (kcp.Shard, error) {
	shards, err := root.Shards(ctx)
	if err != nil {
		return kcp.Shard{}, err
	}
	for _, s := range shards {
		if s.Name != c.ShardName() {
			continue
		}
		if s.BaseURL != c.URL {
			return s, fmt.Errorf("registered with the URL %s, not yet %s", s.BaseURL, c.URL)
		}
		return s, nil
	}
	return kcp.Shard{}, errors.New("not yet registered with the root shard")
}

// recordLabels records which labels the setup wants for its shards in kcp, and notes those that change: no object shows them.
func (u *Up) recordLabels(known, next *record.Record) {
	for _, c := range u.chosen() {
		if !c.IsShard() {
			continue
		}
		next.SetLabels(c.ID(), c.ShardLabels)
		if was := known.Labels[c.ID()]; !known.Empty() && !maps.Equal(was, c.ShardLabels) && !u.quiet {
			u.emit(Event{Scope: Note, Message: fmt.Sprintf("%s: labels in kcp change from %s to %s", c.ID(), labelText(was), labelText(c.ShardLabels))})
		}
	}
}

func labelText(all map[string]string) string { return cmp.Or(labels.Set(all).String(), "none") }

// bindRoles gives the user of a kubeconfig the cluster roles that it is declared with.
func (u *Up) bindRoles(ctx context.Context, c *topology.Component, s *pki.State) error {
	if len(c.Access.ClusterRoles) == 0 {
		return nil
	}
	root, err := Connect(u.Runtime, u.Topology.OfKind(topology.FrontProxy)[0], s, u.Now())
	if err != nil {
		return err
	}
	return u.until(ctx, c, func() error {
		return root.BindRoles(ctx, c.Access.Workspace, c.Object(), pki.KubeconfigGroup(c), c.Access.ClusterRoles)
	})
}

// until tries until it works or ctx ends, reporting the reason why not.
func (u *Up) until(ctx context.Context, c *topology.Component, try func() error) error {
	reported := ""
	for {
		err := try()
		if err == nil {
			return nil
		}
		if msg := err.Error(); ctx.Err() == nil && msg != reported {
			reported = msg
			u.component(c.ID(), Running, msg)
		}
		select {
		case <-ctx.Done():
			return &notReady{reported, nil, "", context.Cause(ctx)}
		case <-time.After(pollInterval):
		}
	}
}

// canaries prove that every shard serves through a front-proxy.
func (u *Up) canaries(ctx context.Context, s *pki.State) error {
	shards, err := u.canaryShards(ctx, s)
	if err != nil {
		return u.fail(stepCanary, err)
	}
	if len(shards) == 0 {
		u.step(stepCanary, Done, "none: every shard is cordoned and takes no workspace")
		return nil
	}
	proxy, err := Connect(u.Runtime, u.Topology.OfKind(topology.FrontProxy)[0], s, u.Now())
	if err != nil {
		return u.fail(stepCanary, err)
	}
	if u.Options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.Options.Timeout, errTimeout{u.Options.Timeout})
		defer cancel()
	}
	u.step(stepCanary, Running, "a workspace on "+count(len(shards), "shard", "shards"))
	report := newReasons(func(msg string) { u.step(stepCanary, Running, msg) })
	errs := make([]error, len(shards))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, c := range shards {
		g.Go(func() error {
			errs[i] = proxy.Canary(ctx, c.ShardName(), func(reason string) { report.set(c.ShardName(), reason) })
			report.set(c.ShardName(), "")
			return nil
		})
	}
	_ = g.Wait()
	var failed []string
	for i, err := range errs {
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: canary: %v", shards[i].ID(), err))
		}
	}
	if len(failed) == 0 {
		u.step(stepCanary, Done, "a workspace on each of "+shardNames(shards)+" became Ready and was read through the front-proxy")
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return clierr.New(clierr.Interrupted, "run the same command again: it continues", "interrupted; what is done is kept")
	}
	return u.fail(stepCanary, clierr.New(clierr.NotReady,
		"see the shards' logs; kcpctl status shows what is registered", "%s", strings.Join(failed, "\n")))
}

// canaryShards are the registered shards of the setup but for cordoned ones, where no workspace would ever be scheduled. All
// are registered by now, unless the run is limited to others.
func (u *Up) canaryShards(ctx context.Context, s *pki.State) ([]*topology.Component, error) {
	root, err := Connect(u.Runtime, u.Topology.Root(), s, u.Now())
	if err != nil {
		return nil, err
	}
	registered, err := root.Shards(ctx)
	if err != nil {
		return nil, err
	}
	takes := map[string]bool{}
	for _, sh := range registered {
		takes[sh.Name] = !sh.Cordoned
	}
	return slices.DeleteFunc(u.Topology.Shards(), func(c *topology.Component) bool {
		left := len(u.Options.Canaries) > 0 && !slices.Contains(u.Options.Canaries, c.ID())
		return left || !takes[c.ShardName()]
	}), nil
}

func shardNames(shards []*topology.Component) string {
	if len(shards) > 5 {
		return fmt.Sprintf("%d shards", len(shards))
	}
	var out []string
	for _, c := range shards {
		out = append(out, c.ShardName())
	}
	return strings.Join(out, ", ")
}
