package kube

import (
	"context"
	"fmt"
	"slices"

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
	home, err := r.inventory(ctx, r.home)
	if err != nil {
		return err
	}
	for _, p := range home.clusters {
		if r.placed(p) {
			continue
		}
		s, err := newSite(p.cluster(), r.options, r.notify)
		if err == nil {
			err = s.connect(ctx)
		}
		if err != nil || s.uid != p.UID {
			r.lost = append(r.lost, p)
			r.tell("what the setup left on cluster %s (context %s, namespace %s) stays there: the cluster cannot be reached, or is another one now",
				p.Name, p.Context, p.Namespace)
			continue
		}
		left, err := r.left(ctx, s, home)
		if err != nil {
			return err
		}
		if left {
			r.former = append(r.former, s)
		}
	}
	r.knowsFormer = true
	return nil
}

// left reports whether a cluster is one that the setup has left: not a place that it still has under another name, and not one
// that belongs to another installation by now.
func (r *Runtime) left(ctx context.Context, s *site, home *inventory) (bool, error) {
	for _, o := range r.sites {
		if same, err := r.samePlace(ctx, s, o); same || err != nil {
			return false, err
		}
	}
	there, err := r.inventory(ctx, s)
	if err != nil {
		return false, err
	}
	if is, was := there.owner.Installation, home.owner.Installation; is != "" && was != "" && is != was {
		r.tell("the setup has left cluster %s (%s), which belongs to another installation of kcp %q now: %s", s.Name, s.where(), r.topology.Name, is)
		return false, nil
	}
	return true, nil
}

// tell is notify for what is found out twice in a run. The caller holds r.mu.
func (r *Runtime) tell(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if !slices.Contains(r.told, message) {
		r.told = append(r.told, message)
		r.notify("%s", message)
	}
}

// forgetFormer makes the next call find the former clusters again: other runs may have left some before this one got the lock.
func (r *Runtime) forgetFormer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.former, r.lost, r.knowsFormer = nil, nil, false
}

// samePlace reports whether two clusters of the setup are one namespace of one cluster. Users who may not see what tells clusters
// apart are served by the server's address, and by the inventory.
func (r *Runtime) samePlace(ctx context.Context, a, b *site) (bool, error) {
	switch {
	case a.Namespace != b.Namespace:
		return false, nil
	case a.uid != "" && b.uid != "":
		return a.uid == b.uid, nil
	case a.config.Host == b.config.Host:
		return true, nil
	}
	x, err := r.inventory(ctx, a)
	if err != nil || !x.exists() {
		return false, err
	}
	y, err := r.inventory(ctx, b)
	return err == nil && x.secret.UID == y.secret.UID, err
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
