package kube

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// findFormer finds the clusters that the setup was on and is no more, as the home cluster's inventory remembers them, so
// that what is left there can be deleted. A cluster that does not answer any more is passed over with a message.
func (r *Runtime) findFormer(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.knowsFormer {
		return nil
	}
	if err := onSites(ctx, r.sites, func(context.Context, *site) error { return nil }); err != nil {
		return err // their UIDs tell which places the setup still has
	}
	inv, err := r.inventory(ctx, r.home)
	if err != nil {
		return err
	}
	for _, p := range inv.clusters {
		if r.placed(p) {
			continue
		}
		s, err := newSite(p.cluster(), r.options, r.notify)
		if err == nil {
			err = s.connect(ctx)
		}
		if err != nil || s.uid != p.UID {
			r.lost = append(r.lost, p)
			r.notify("what the setup left on cluster %s (context %s, namespace %s) stays there: the cluster cannot be reached",
				p.Name, p.Context, p.Namespace)
			continue
		}
		r.former = append(r.former, s)
	}
	r.knowsFormer = true
	return nil
}

// placed tells whether the setup still has a place.
func (r *Runtime) placed(p placement) bool {
	for _, s := range r.sites {
		if now := s.placement(); now.is(p) || now.UID != "" && now.UID == p.UID && now.Namespace == p.Namespace {
			return true // the latter is one that the setup calls otherwise now
		}
	}
	return false
}

// leave forgets those former clusters on which nothing is left, not even data.
func (r *Runtime) leave(ctx context.Context) error {
	var kept []*site
	for _, s := range r.all()[len(r.sites):] {
		claims, err := s.list(ctx, known("PersistentVolumeClaim"), r.selector())
		if err != nil {
			return err
		}
		left, err := r.members(ctx, s)
		if err != nil {
			return err
		}
		if len(claims)+len(left) > 0 {
			kept = append(kept, s)
			continue
		}
		if err := r.purge(ctx, s); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.former = kept
	return nil
}

// selector selects everything that belongs to the setup.
func (r *Runtime) selector() string { return topology.LabelSetup + "=" + r.topology.Name }
