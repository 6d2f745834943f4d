package check

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// shards returns all registered shards.
func (s *Subject) shards(ctx context.Context) ([]kcp.Shard, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	return root.Shards(ctx)
}

func registration(ctx context.Context, s *Subject) (o outcome) {
	registered, err := s.shards(ctx)
	if err != nil {
		return fromError(err)
	}
	byName := map[string]kcp.Shard{}
	for _, sh := range registered {
		byName[sh.Name] = sh
	}
	for _, c := range s.Topology.Shards() {
		sh, ok := byName[c.ShardName()]
		delete(byName, c.ShardName())
		if !ok {
			o.fail("%s: not registered with the root shard", c.ID())
			continue
		}
		for _, u := range []struct{ what, have, want string }{
			{"base URL", sh.BaseURL, c.URL}, {"external URL", sh.ExternalURL, c.ExternalURL},
			{"virtual workspace URL", sh.VirtualWorkspaceURL, c.VirtualWorkspaceURL},
		} {
			if strings.TrimSuffix(u.have, "/") != strings.TrimSuffix(u.want, "/") {
				o.fail("%s: registered with the %s %s instead of %s", c.ID(), u.what, u.have, u.want)
			}
		}
	}
	for _, sh := range registered {
		if _, ok := byName[sh.Name]; ok {
			o.warn("shard %s (%s) is registered but not in the setup", sh.Name, sh.BaseURL)
		}
	}
	return o
}

func schedulable(ctx context.Context, s *Subject) (o outcome) {
	registered, err := s.shards(ctx)
	if err != nil {
		return fromError(err)
	}
	var cordoned []string
	for _, sh := range registered {
		if sh.Cordoned {
			cordoned = append(cordoned, sh.Name)
		}
	}
	switch {
	case len(cordoned) == 0:
	case len(cordoned) == len(registered):
		o.fail("every shard is cordoned: %s; no workspace can be created", list(cordoned))
	default:
		o.warn("cordoned: %s", list(cordoned))
	}
	return o
}

// caches compares the objects of shards with their copies in the cache.
func caches(ctx context.Context, s *Subject) (o outcome) {
	holder := s.Topology.CacheHolder()
	if !s.serves(holder.ID()) {
		return skipped("%s is not ready", holder.ID())
	}
	cache, err := s.client(holder)
	if err != nil {
		return fromError(err)
	}
	o.absorb("", s.cachedShards(ctx, cache))
	o.absorb("", s.eachOf(s.Topology.Shards(), func(c *topology.Component) (o outcome) {
		shard, err := s.client(c)
		var have, cached []string
		if err == nil {
			have, err = shard.Replicated(ctx)
		}
		if err == nil {
			cached, err = cache.Cached(ctx, c.ShardName())
		}
		if err != nil {
			o.fail("%s: %s", c.ID(), reason(ctx, err))
			return o
		}
		if missing := without(have, cached); len(missing) > 0 {
			o.fail("%s: the cache lacks %s", c.ID(), list(missing))
		}
		if extra := without(cached, have); len(extra) > 0 {
			o.fail("%s: the cache still has %s", c.ID(), list(extra))
		}
		return o
	}))
	return o
}

// cachedShards compares the shards in the cache with the registered ones.
func (s *Subject) cachedShards(ctx context.Context, cache *kcp.Client) (o outcome) {
	registered, err := s.shards(ctx)
	if err != nil {
		return fromError(err)
	}
	known, err := cache.CachedShards(ctx)
	if err != nil {
		o.fail("%s", reason(ctx, err))
		return o
	}
	for _, sh := range registered {
		if !slices.Contains(known, sh.Name) {
			o.fail("the cache does not know shard %s", sh.Name)
		}
	}
	return o
}

// without returns the names of the first list that are not in the second, sorted one.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		_, found := slices.BinarySearch(others, name)
		return found
	})
}

// endpoints tries the URLs at which the shards serve kcp's own APIs to their provider.
func endpoints(ctx context.Context, s *Subject) (o outcome) {
	root, err := s.root()
	if err != nil {
		return fromError(err)
	}
	found, err := root.EndpointSlices(ctx)
	if err != nil {
		return fromError(err)
	}
	type endpoint struct{ slice, url string }
	at := map[*topology.Component][]endpoint{}
	for _, e := range found {
		for _, p := range e.Problems {
			o.fail("APIExportEndpointSlice %s:%s: %s", e.Cluster, e.Name, p)
		}
		for _, u := range e.URLs {
			server := s.serverAt(u)
			if server == nil {
				o.fail("APIExportEndpointSlice %s:%s: %s: no shard of the setup has this address", e.Cluster, e.Name, u)
				continue
			}
			at[server] = append(at[server], endpoint{e.Cluster + ":" + e.Name, u})
		}
	}
	servers := slices.DeleteFunc(s.Topology.Running(), func(c *topology.Component) bool { return at[c] == nil })
	o.absorb("", s.eachOf(servers, func(c *topology.Component) outcome {
		return every(at[c], func(e endpoint) (o outcome) {
			if why := s.tryEndpoint(ctx, c, e.url); why != "" {
				o.fail("APIExportEndpointSlice %s: %s: %s", e.slice, e.url, why)
			}
			return o
		})
	}))
	return o
}

// serverAt is the component that serves virtual workspaces at a URL, or nil.
func (s *Subject) serverAt(rawURL string) *topology.Component {
	for _, c := range s.Topology.Shards() {
		if topology.HostPort(c.VirtualWorkspaceURL) == topology.HostPort(rawURL) {
			return s.Topology.WorkspaceServer(c)
		}
	}
	return nil
}

// tryEndpoint returns why a URL does not answer; empty if it does.
func (s *Subject) tryEndpoint(ctx context.Context, server *topology.Component, rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return err.Error()
	}
	client, err := s.client(server)
	if err != nil {
		return err.Error()
	}
	a, err := client.Get(ctx, strings.TrimSuffix(u.Path, "/")+"/clusters/*/apis", nil)
	switch {
	case err != nil:
		return reason(ctx, err)
	case a.Code != http.StatusOK:
		return http.StatusText(a.Code)
	}
	return ""
}
