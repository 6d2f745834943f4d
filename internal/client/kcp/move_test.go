package kcp_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

func migrating(phase, to string, conditions ...any) fakekcp.Answer {
	return ok(map[string]any{
		"apiVersion": "v1", "kind": "LogicalClusterMigration",
		"metadata": map[string]any{"name": "kcpctl-2a", "resourceVersion": "7"},
		"spec":     map[string]any{"destinationShard": to},
		"status":   map[string]any{"phase": phase, "originShard": "alpha", "conditions": conditions},
	})
}

// inPhase is the LogicalCluster of a workspace.
func inPhase(phase string, moving bool) fakekcp.Answer {
	o := logicalCluster("2a", "root:a", false).(map[string]any)
	o["status"] = map[string]any{"phase": phase}
	if moving {
		o["metadata"].(map[string]any)["annotations"].(map[string]any)["kcpctl.dev/moving"] = "beta"
	}
	return ok(o)
}

// The digests of an entry a with the value 1, and the same with a LogicalCluster.
const (
	onlyA    = "v1:ypeBEsprhrJz"
	withSelf = "v1:ypeBEsprhrJzwgr224Vf7Otm"
)

// noted adds the content before the copy to a migration.
func noted(a fakekcp.Answer, content string) fakekcp.Answer {
	a.Body.(map[string]any)["metadata"].(map[string]any)["annotations"] = map[string]any{"kcpctl.dev/content": content}
	return a
}

func dumped(entries map[string]string) fakekcp.Answer {
	var all []any
	for key, value := range entries {
		all = append(all, map[string]any{"key": key, "value": base64.StdEncoding.EncodeToString([]byte(value))})
	}
	return fakekcp.Answer{Code: http.StatusCreated, Body: map[string]any{"status": map[string]any{"entries": all}}}
}

// The two shards of these moves are the same server.
func TestMove(t *testing.T) {
	const (
		one     = migrationsPath + "/kcpctl-2a"
		lc      = "/clusters/2a/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
		probe   = "/clusters/2a/api/v1/namespaces"
		dump    = "/clusters/2a/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
		holding = "kcpctl:holding"
		// deleting is the body of a deletion.
		deleting = `{"apiVersion":"v1","kind":"DeleteOptions"}`
	)
	refused := fakekcp.Refuse(http.StatusForbidden, "Forbidden", "access denied")
	forgotten := map[string]any{"status": "False", "reason": "CopyFailed", "message": `logicalclusterdumps "2a" not found`}
	cleaned := map[string]any{"type": "OriginCleaned", "status": "True"}
	copied := map[string]any{"type": "DataCopied", "status": "True"}
	unknown := fakekcp.Refuse(http.StatusNotFound, "NotFound", "not found")
	failed := map[string]any{"status": "False", "reason": "LogicalClusterAlreadyMigrating", "message": "by another one"}
	for name, tc := range map[string]struct {
		answers map[string][]fakekcp.Answer
		reasons []string
		wantErr string
		accept  bool
		sent    map[string][]string
	}{
		"from the beginning": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {
					fakekcp.Refuse(http.StatusNotFound, "NotFound", "none"), migrating("Migrating", holding), migrating("Migrating", holding),
					migrating("OriginCleanup", "beta"), migrating("DestinationFinalize", "beta"), migrating("Completed", "beta"),
				},
				"GET " + lc: {
					inPhase("Ready", false), inPhase("Unavailable", true), inPhase("Unavailable", true), inPhase("Unavailable", true),
					inPhase("Ready", false),
				},
				"GET " + probe: {ok(shard()), refused, refused, refused},
				"POST " + dump: {
					dumped(map[string]string{"a": "1", "core/events/2a/x": "1"}), dumped(map[string]string{"a": "1", "b": "2"}),
				},
			},
			reasons: []string{"Preparing", "shard alpha still serves it", "copying 1 entries", "OriginCleanup", "DestinationFinalize"},
			sent: map[string][]string{
				"PATCH " + lc: {
					`{"metadata":{"annotations":{"kcpctl.dev/moving":"beta"}}}`, `{"metadata":{"annotations":{"kcpctl.dev/moving":null}}}`,
				},
				"PATCH " + lc + "/status": {`{"status":{"phase":"Unavailable"}}`, `{"status":{"phase":"Ready"}}`},
			},
		},
		"a source that has forgotten it is told": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {migrating("Migrating", "beta", forgotten), migrating("Completed", "beta")},
				"GET " + lc:  {inPhase("Ready", false)},
			},
			reasons: []string{`Migrating: CopyFailed: logicalclusterdumps "2a" not found`},
			sent: map[string][]string{
				"PATCH " + one + "/status": {`{"metadata":{"resourceVersion":"7"},"status":{"phase":"Preparing"}}`},
			},
		},
		"a destination that was restarted is told": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {
					noted(migrating("DestinationFinalize", "beta"), withSelf), noted(migrating("Migrating", "beta", cleaned), withSelf),
					noted(migrating("Migrating", "beta", cleaned, forgotten), withSelf),
					noted(migrating("DestinationFinalize", "beta"), withSelf), migrating("Completed", "beta"),
				},
				"GET " + lc: append(slices.Repeat([]fakekcp.Answer{inPhase("Unavailable", true)}, 4), inPhase("Ready", false)),
				"POST " + dump: {
					unknown, unknown, dumped(map[string]string{"a": "1", "core.kcp.io/logicalclusters/2a/cluster": "with its URL"}),
				},
			},
			reasons: []string{
				"shard beta: the shard has forgotten the move",
				`Migrating: CopyFailed: logicalclusterdumps "2a" not found`, "DestinationFinalize",
			},
			sent: map[string][]string{
				"PATCH " + one + "/status": {
					`{"metadata":{"resourceVersion":"7"},"status":{"phase":"Migrating"}}`,
					`{"metadata":{"resourceVersion":"7"},"status":{"phase":"DestinationFinalize"}}`,
				},
				"PATCH " + lc + "/status": {`{"status":{"phase":"Ready"}}`},
			},
		},
		"a destination that gives no answer leaves it closed": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one:   {noted(migrating("Migrating", "beta", cleaned), onlyA)},
				"GET " + lc:    {inPhase("Unavailable", true)},
				"POST " + dump: {unknown},
			},
			wantErr: "the shard was restarted and does not give the content of its copy, so it stays closed on shard beta",
			sent:    map[string][]string{"PATCH " + lc + "/status": nil},
		},
		"a copy of an unknown original stays closed": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {migrating("DestinationFinalize", "beta")},
				"GET " + lc:  {inPhase("Unavailable", true)},
			},
			wantErr: "it is not known which content it had before it was copied, so it stays closed on shard beta",
			sent:    map[string][]string{"PATCH " + lc + "/status": nil},
		},
		"a copy that an operator has looked at": {
			accept: true,
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {migrating("DestinationFinalize", "beta"), migrating("Completed", "beta")},
				"GET " + lc:  {inPhase("Unavailable", true), inPhase("Unavailable", true), inPhase("Ready", false)},
			},
			reasons: []string{"DestinationFinalize"},
			sent:    map[string][]string{"PATCH " + lc + "/status": {`{"status":{"phase":"Ready"}}`}},
		},
		"a copy that an earlier run found to differ stays closed": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one:   {noted(migrating("DestinationFinalize", "beta"), onlyA)},
				"GET " + lc:    {inPhase("Unavailable", true)},
				"POST " + dump: {dumped(map[string]string{"a": "2"})},
			},
			wantErr: "1 of 1 entries are not the same as before it was copied: a, so it stays closed on shard beta",
		},
		"a copy that differs stays closed": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one:   {migrating("Migrating", holding), migrating("DestinationFinalize", "beta")},
				"GET " + lc:    {inPhase("Unavailable", true)},
				"GET " + probe: {refused, refused},
				"POST " + dump: {dumped(map[string]string{"a": "1", "b": "2"}), dumped(map[string]string{"a": "2", "b": "2"})},
			},
			reasons: []string{"copying 2 entries"},
			wantErr: "1 of 2 entries are not the same as before it was copied: a, so it stays closed on shard beta",
		},
		"fails": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {migrating("Failed", holding, failed)}, "GET " + lc: {inPhase("Ready", false)},
			},
			wantErr: "migration failed: LogicalClusterAlreadyMigrating: by another one",
			sent:    map[string][]string{"PATCH " + lc + "/status": nil, "DELETE " + one: {deleting}},
		},
		"fails when it is closed": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {migrating("Failed", "beta", failed)}, "GET " + lc: {inPhase("Unavailable", true)},
				"GET " + probe: {ok(shard()), refused},
			},
			reasons: []string{"migration failed: LogicalClusterAlreadyMigrating: by another one\nshard beta still serves it"},
			wantErr: "migration failed: LogicalClusterAlreadyMigrating: by another one; it is open again on shard alpha",
			sent: map[string][]string{
				"PATCH " + lc + "/status": {`{"status":{"phase":"Ready"}}`}, "DELETE " + one: {deleting},
			},
		},
		"fails when the original may be incomplete": {
			answers: map[string][]fakekcp.Answer{
				"GET " + one: {migrating("Failed", "beta", failed, copied)}, "GET " + lc: {inPhase("Unavailable", true)},
			},
			wantErr: "by another one, and a part of it may have been deleted, so it stays closed on shard alpha",
			sent:    map[string][]string{"PATCH " + lc + "/status": nil, "DELETE " + one: nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string][]fakekcp.Answer{
				"POST " + migrationsPath: {migrating("Preparing", holding)}, "DELETE " + one: {ok(shard())},
				"PATCH " + one: {ok(shard()), ok(shard())}, "PATCH " + one + "/status": {ok(shard())},
				"PATCH " + lc: {ok(shard()), ok(shard())}, "PATCH " + lc + "/status": {ok(shard()), ok(shard())},
			}
			for key, answers := range tc.answers {
				all[key] = answers
			}
			withAnswers(t, all, func(t *testing.T, c *kcp.Client, a *answers) {
				var reasons []string
				m := &kcp.Move{
					Root: c, Cluster: "2a", Shard: "beta", Accept: tc.accept,
					End:    func(string) (kcp.End, error) { return kcp.End{Mover: c, Client: c}, nil },
					Report: func(r string) { reasons = append(reasons, r) },
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				err := m.Run(ctx)
				if tc.wantErr != "" {
					require.ErrorContains(t, err, tc.wantErr)
				} else {
					require.NoError(t, err)
				}
				if len(tc.reasons) > 0 || tc.wantErr == "" {
					require.Equal(t, tc.reasons, reasons)
				}
				for key, want := range tc.sent {
					require.Equal(t, want, a.sent[key], key)
				}
			})
		})
	}
}
