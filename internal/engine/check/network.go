package check

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// external is a URL of the setup that is dialled from outside the cluster of the component that serves it.
type external struct {
	url       string
	component *topology.Component
	// clients are those outside of the setup that use the URL. Empty: only components do.
	clients string
}

// externals returns the external URLs of a setup, each once. URLs with the name of a Service in the cluster are not
// external.
func externals(t *topology.Topology) []external {
	var all []external
	add := func(rawURL string, c *topology.Component, clients string) {
		if i := slices.IndexFunc(all, func(e external) bool { return e.url == rawURL }); i >= 0 {
			all[i].clients = cmp.Or(all[i].clients, clients)
			return
		}
		if rawURL == "" || c.Assignment.Pending() || !t.Local() && hostOf(rawURL) == c.Host() {
			return
		}
		all = append(all, external{rawURL, c, clients})
	}
	for _, c := range t.FrontProxies() {
		add(c.ExternalURL, c, "clients of kcp")
	}
	for _, c := range t.Servers() {
		add(c.URL, c, "")
	}
	for _, c := range t.Shards() {
		add(c.VirtualWorkspaceURL, t.WorkspaceServer(c), "clients of virtual workspaces")
	}
	return all
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// resolves looks up the hosts of all external URLs, except those that clusters have yet to assign.
func resolves(ctx context.Context, s *Subject) (o outcome) {
	var hosts []string
	for _, e := range externals(s.Topology) {
		if h := hostOf(e.url); net.ParseIP(h) == nil && !e.component.Assignment.Pending() &&
			!slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) == 0 {
		return skipped("the setup has no external host name")
	}
	errs := parallel.Map(len(hosts), hosts, func(h string) error {
		_, err := s.network().LookupHost(ctx, h)
		return err
	})
	for i, h := range hosts {
		if errs[i] != nil {
			o.warn("%s does not resolve on this machine: %s", h, reason(ctx, errs[i]))
		}
	}
	return o
}
