package render

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const authorizationWebhookFile = "authorization-webhook.kubeconfig"

// authorizationFlags returns the flags with which a shard authorizes requests (kcp:
// pkg/server/options/authorization.go).
func authorizationFlags(c *topology.Component) []flag {
	a := c.Authorization
	if a == nil {
		return nil
	}
	fl := given("authorization-", flag{"order", strings.Join(a.Order, ",")})
	if len(a.AlwaysAllowPaths) > 0 {
		all := commaSeparated(topology.HealthPaths, a.AlwaysAllowPaths)
		fl = append(fl, flag{"authorization-always-allow-paths", all})
	}
	if w := a.Webhook; w != nil {
		fl = append(fl, given("authorization-webhook-",
			flag{"config-file", c.Path(files.Config(authorizationWebhookFile))},
			flag{"version", w.Version},
			flag{"cache-authorized-ttl", duration(w.CacheAuthorizedTTL.Duration)},
			flag{"cache-unauthorized-ttl", duration(w.CacheUnauthorizedTTL.Duration)})...)
	}
	return fl
}

// authorization returns the file with which a shard dials a webhook.
func (b *objects) authorization() ([]item, []source) {
	a := b.c.Authorization
	if a == nil || a.Webhook == nil {
		return nil, nil
	}
	file := item{key: a.Webhook.Key, path: files.Config(authorizationWebhookFile)}
	return nil, []source{{secret: a.Webhook.Secret, items: []item{file}}}
}

// custom returns the kubeconfig with which a server of virtual workspaces dials kcp, if it is the user's.
func (b *objects) custom() ([]item, []source) {
	if b.c.Custom == nil || b.c.Custom.KubeconfigSecret == "" {
		return nil, nil
	}
	file := item{key: KubeconfigKey, path: files.Kubeconfig(topology.KubeconfigShard)}
	return nil, []source{{secret: b.c.Custom.KubeconfigSecret, items: []item{file}}}
}

// workspaceFlags returns the flags for what a shard creates in kcp by itself. kcp has home workspaces unless they are
// off.
func workspaceFlags(t *topology.Topology) []flag {
	spec := &t.Setup.Spec
	batteries := cmp.Or(strings.Join(spec.Batteries, ","), "workspace-types")
	fl := []flag{{"batteries-included", batteries}}
	if home := spec.HomeWorkspaces; home.Enabled != nil && !*home.Enabled {
		fl = append(fl, flag{"enable-home-workspaces", "false"})
	} else if len(home.CreatorGroups) > 0 {
		fl = append(fl, flag{"home-workspaces-home-creator-groups", commaSeparated(home.CreatorGroups)})
	}
	return fl
}

// logging returns the flags for logs and for the profiler. A profiler listens on loopback only, because it has no
// authentication.
func logging(c *topology.Component) []flag {
	fl := []flag{{"v", fmt.Sprint(*c.LogLevel)}}
	if c.LogFormat != "" && (c.Kind != topology.CacheServer || release.CacheLogFormat(c.Version)) {
		fl = append(fl, flag{"logging-format", c.LogFormat})
	}
	if c.ProfilerPort != 0 && c.Kind != topology.CacheServer {
		fl = append(fl, flag{"profiler-address", fmt.Sprintf("localhost:%d", c.ProfilerPort)})
	}
	return fl
}
