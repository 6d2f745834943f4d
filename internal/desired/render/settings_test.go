package render_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Settings of kcp become flags of the programs that have them, and files that they name.
func TestSettings(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  authorization:
    webhook: {secret: authorizer, cacheAuthorizedTTL: 1m, cacheUnauthorizedTTL: 5s}
    order: [AlwaysAllowPaths, AlwaysAllowGroups, Webhook, RBAC]
    alwaysAllowPaths: [/version]
  homeWorkspaces: {creatorGroups: [staff, "team a"]}
  batteries: [workspace-types, metrics-viewer]
  featureGates: {WorkspaceAuthentication: true, CacheAPIs: true}
  defaults: {logFormat: json, profilerPort: 6060}
  cacheServer: {}
  shards:
  - {name: alpha, logFormat: text, authorization: {webhook: {secret: other, key: config, version: v1beta1}}}
  - {name: old, image: {tag: v0.28.3}}
  virtualWorkspaces: [{name: main, shard: root}]
`)
	logs := []string{"--logging-format=json", "--profiler-address=localhost:6060"}
	const file = "--authorization-webhook-config-file=/etc/kcp/config/authorization-webhook.kubeconfig"
	root := []string{
		"--authorization-order=AlwaysAllowPaths,AlwaysAllowGroups,Webhook,RBAC",
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/version", file, "--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=1m0s", "--authorization-webhook-cache-unauthorized-ttl=5s",
		"--batteries-included=workspace-types,metrics-viewer", "--home-workspaces-home-creator-groups=staff,team a",
		"--feature-gates=CacheAPIs=true,WorkspaceAuthentication=true",
	}
	require.Subset(t, argsOf(t, objects, "demo-root"), append(root, logs...))
	require.Subset(t, argsOf(t, objects, "demo-shard-alpha"), []string{file, "--authorization-webhook-version=v1beta1", "--logging-format=text"})
	require.Subset(t, argsOf(t, objects, "demo-shard-old"), append([]string{"--feature-gates=CacheAPIs=true"}, logs...))
	require.Subset(t, argsOf(t, objects, "demo-front-proxy-main"), append(root[len(root)-1:], logs...))
	require.Subset(t, argsOf(t, objects, "demo-vw-main"), logs)
	cache := argsOf(t, objects, "demo-cache")
	require.Contains(t, cache, logs[0])
	require.NotContains(t, cache, logs[1])
	for _, name := range []string{"demo-vw-main", "demo-cache", "demo-front-proxy-main"} {
		require.False(t, has(argsOf(t, objects, name), "--authorization-order"), name)
	}
	require.Contains(t, jsonOf(t, objects, "Deployment", "demo-root"),
		`{"secret":{"items":[{"key":"kubeconfig","path":"config/authorization-webhook.kubeconfig"}],"name":"authorizer"}}`)
	require.Contains(t, jsonOf(t, objects, "Deployment", "demo-shard-alpha"),
		`{"secret":{"items":[{"key":"config","path":"config/authorization-webhook.kubeconfig"}],"name":"other"}}`)
}

// A release has only the flags that it knows, and without settings a shard has the flags that it had before them.
func TestSettingsOfReleases(t *testing.T) {
	_, _, objects := rendered(t, "spec: {version: v0.30.3, cacheServer: {logFormat: json}, homeWorkspaces: {enabled: false}}")
	require.False(t, has(argsOf(t, objects, "demo-cache"), "--logging-format"))
	root := argsOf(t, objects, "demo-root")
	require.Contains(t, root, "--enable-home-workspaces=false")
	i := slices.Index(root, "--batteries-included=workspace-types")
	require.Equal(t, []string{"--enable-home-workspaces=false", "--root-directory="}, root[i+1:i+3])
}
