package kcp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// others are entries of the cache that are never touched when alpha's are deleted.
var others = []fakekcp.Entry{
	{Shard: "root", Cluster: "root", Resource: "apiexports", Name: "tenancy.kcp.io"},
	{Shard: "alpha2", Cluster: "one", Resource: "apiexports", Name: "widgets"},
	{Shard: "beta", Cluster: "one", Resource: "configmaps:hash", Namespace: "default", Name: "shared"},
	{Shard: "beta", Cluster: "one", Resource: "cachedresources", Name: "maps", Fields: publishes("configmaps", "hash")},
}

func publishes(resource, identity string) map[string]any {
	return map[string]any{
		"spec":   map[string]any{"group": "", "version": "v1", "resource": resource},
		"status": map[string]any{"identityHash": identity},
	}
}

// ofAlpha are entries of every kind that a shard can have.
func ofAlpha() []fakekcp.Entry {
	return []fakekcp.Entry{
		{Shard: "alpha", Cluster: "one", Resource: "apiexports", Name: "widgets"},
		{Shard: "alpha", Cluster: "two", Resource: "apiexports", Name: "widgets"},
		{Shard: "alpha", Cluster: "one", Resource: "logicalclusters", Name: "cluster", Finalizers: []string{"core.kcp.io/logicalcluster"}},
		{Shard: "alpha", Cluster: "two", Resource: "roles", Namespace: "default", Name: "reader"},
		{Shard: "alpha", Cluster: "two", Resource: "configmaps:hash", Namespace: "default", Name: "shared"},
		{Shard: "alpha", Cluster: "two", Resource: "cachedresources", Name: "maps", Fields: publishes("configmaps", "hash"), Finalizers: []string{"x"}},
		{Shard: "alpha", Cluster: "two", Resource: "cachedresources", Name: "same", Fields: publishes("configmaps", "hash")},
		{Shard: "alpha", Cluster: "one", Resource: "cachedresources", Name: "new", Fields: publishes("secrets", "")},
	}
}

func names(entries []fakekcp.Entry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, e.String())
	}
	slices.Sort(out)
	return out
}

func TestClearCache(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.Put(ofAlpha()...)
		k.Put(others...)
		want := []kcp.Entries{
			{"configmaps:hash", 1}, {"apiexports.apis.kcp.io", 2}, {"logicalclusters.core.kcp.io", 1},
			{"roles.rbac.authorization.k8s.io", 1}, {"cachedresources.cache.kcp.io", 3},
		}
		counted, err := c.CountCache(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, want, counted)
		require.Equal(t, 8, kcp.Total(counted))

		deleted, err := c.ClearCache(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, want, deleted)
		require.Equal(t, names(others), k.InCache())

		deleted, err = c.ClearCache(t.Context(), "alpha")
		require.NoError(t, err)
		require.Empty(t, deleted)
	})
}

func TestClearCacheOfManyPages(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		for i := range 250 {
			k.Put(fakekcp.Entry{Shard: "alpha", Cluster: fmt.Sprint("c", i%7), Resource: "apiresourceschemas", Name: fmt.Sprint("s", i)})
		}
		want := []kcp.Entries{{"apiresourceschemas.apis.kcp.io", 250}}
		counted, err := c.CountCache(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, want, counted)
		deleted, err := c.ClearCache(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, want, deleted)
		require.Empty(t, k.InCache())
	})
}

// A name becomes a part of a path: no name leads to the entries of another shard, or of all.
func TestClearCacheRefusesNames(t *testing.T) {
	for name, want := range map[string]string{
		"":                    `invalid shard name ""`,
		"*":                   `invalid shard name "*"`,
		"root":                "refusing to delete the objects of shard root",
		"system:cache:server": `invalid shard name "system:cache:server"`,
		"alpha/../root":       `invalid shard name "alpha/../root"`,
		"..":                  `invalid shard name ".."`,
		"%2a":                 `invalid shard name "%2a"`,
		"Alpha":               `invalid shard name "Alpha"`,
	} {
		t.Run(name, func(t *testing.T) {
			withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
				_, err := c.ClearCache(t.Context(), name)
				require.ErrorContains(t, err, want)
				require.Empty(t, k.Requests(""))
			})
		})
	}
}

// entryOf is a list of one object of alpha's, as a server may answer that does not do what it is asked for.
func entryOf(annotations map[string]any) fakekcp.Answer {
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "v1", "kind": "EntryList", "metadata": map[string]any{},
		"items": []any{map[string]any{
			"apiVersion": "v1", "kind": "Entry", "metadata": map[string]any{"name": "widgets", "uid": "1", "annotations": annotations},
		}},
	}}
}

func TestClearCacheStops(t *testing.T) {
	const lists = fakekcp.ListCached + "apiexports"
	gone := fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}}
	own := map[string]any{"kcp.io/shard": "alpha", "kcp.io/cluster": "one"}
	for name, tc := range map[string]struct {
		setUp     func(k *fakekcp.Kcp)
		want      string
		deletions int
	}{
		"at an object of another shard": {
			func(k *fakekcp.Kcp) {
				k.Always(lists, entryOf(map[string]any{"kcp.io/shard": "beta", "kcp.io/cluster": "one"}))
			}, `apiexports.apis.kcp.io one:widgets in the cache belongs to shard "beta", not to alpha`, 0,
		},
		"at an object of an unknown shard": {
			func(k *fakekcp.Kcp) { k.Always(lists, entryOf(map[string]any{"kcp.io/cluster": "one"})) },
			`apiexports.apis.kcp.io one:widgets in the cache belongs to shard "", not to alpha`, 0,
		},
		"at an object of an unknown cluster": {
			func(k *fakekcp.Kcp) { k.Always(lists, entryOf(map[string]any{"kcp.io/shard": "alpha"})) },
			"apiexports.apis.kcp.io :widgets of shard alpha in the cache has no logical cluster", 0,
		},
		"when what was deleted stays": {
			func(k *fakekcp.Kcp) {
				k.Always(lists, entryOf(own))
				k.Always(fakekcp.DeleteCached+"apiexports", gone)
			}, "apiexports.apis.kcp.io one:widgets is in the cache again after it was deleted: shard alpha may still be running", 1,
		},
		"when it may not delete": {
			func(k *fakekcp.Kcp) {
				k.Always(lists, entryOf(own))
				k.Always(fakekcp.DeleteCached+"apiexports", fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you"))
			}, "delete apiexports.apis.kcp.io one:widgets of shard alpha in the cache: not you", 1,
		},
		"when it may not list": {
			func(k *fakekcp.Kcp) { k.Always(lists, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you")) },
			"list apiexports.apis.kcp.io of shard alpha in the cache: not you", 0,
		},
		"when it does not learn what there can be": {
			func(k *fakekcp.Kcp) {
				k.Always(fakekcp.ListDefinitions, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you"))
			}, "list the resources of the cache: not you", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
				tc.setUp(k)
				deleted, err := c.ClearCache(t.Context(), "alpha")
				require.EqualError(t, err, tc.want)
				require.Len(t, k.Requests(fakekcp.DeleteCached+"apiexports"), tc.deletions)
				if strings.Contains(tc.want, "still run") {
					require.Equal(t, 1, kcp.Total(deleted))
				}
			})
		})
	}
}
