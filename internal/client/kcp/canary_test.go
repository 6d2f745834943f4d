package kcp_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// canaryLabel marks canaries: one of an earlier release has to be found too.
const canaryLabel = "kcpctl.dev/canary"

// nameless is an error with the random part of a workspace's name left out.
func nameless(err error) string {
	return regexp.MustCompile(`canary-[a-z]+-[a-z0-9]+`).ReplaceAllString(err.Error(), "canary-NAME")
}

var errTooLate = errors.New("timed out")

func TestCanary(t *testing.T) {
	var (
		notYet    = fakekcp.Refuse(http.StatusForbidden, "Forbidden", "access denied")
		notThere  = fakekcp.Refuse(http.StatusNotFound, "NotFound", "not found")
		scheduled = fakekcp.Workspace("Scheduling", "Unschedulable", "no available shards")
	)
	type script map[string][]fakekcp.Answer
	for name, tc := range map[string]struct {
		next   script
		always map[string]fakekcp.Answer
		// want are the reasons that are reported, wantErr is that of the error; without it the canary lives.
		want    []string
		wantErr string
	}{
		"at once": {},
		"every step is refused at first": {
			next: script{
				fakekcp.CreateWorkspace: {notYet, notThere}, fakekcp.GetWorkspace: {notThere, notYet}, fakekcp.GetCluster: {notYet, notThere},
			},
			want: []string{"access denied", "not found", "not found", "access denied", "access denied", "not found"},
		},
		"through the phases": {
			next: script{fakekcp.GetWorkspace: {
				fakekcp.Workspace("", "", ""), scheduled, fakekcp.Workspace("Initializing", "", ""),
			}},
			want: []string{"not scheduled", "scheduling: Unschedulable: no available shards", "initializing"},
		},
		"created though it was answered with an error": {
			next: script{
				fakekcp.CreateWorkspace: {fakekcp.Refuse(http.StatusConflict, "AlreadyExists", "exists")},
				fakekcp.GetWorkspace:    {fakekcp.Workspace("Ready", "", "")},
				fakekcp.GetCluster:      {{Code: http.StatusOK, Body: map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster"}}},
			},
		},
		"cannot be created": {
			always:  map[string]fakekcp.Answer{fakekcp.CreateWorkspace: notYet},
			want:    []string{"access denied"},
			wantErr: "create workspace root:kcpctl-canary-NAME: timed out: access denied",
		},
		"is never scheduled": {
			always:  map[string]fakekcp.Answer{fakekcp.GetWorkspace: scheduled},
			want:    []string{"scheduling: Unschedulable: no available shards"},
			wantErr: "workspace root:kcpctl-canary-NAME: timed out: scheduling: Unschedulable: no available shards",
		},
		"cannot be read": {
			always:  map[string]fakekcp.Answer{fakekcp.GetCluster: notThere},
			want:    []string{"not found"},
			wantErr: "read workspace root:kcpctl-canary-NAME: timed out: not found",
		},
		"no answer": {
			always:  map[string]fakekcp.Answer{fakekcp.GetWorkspace: fakekcp.Hang()},
			wantErr: "workspace root:kcpctl-canary-NAME: timed out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
				for op, answers := range tc.next {
					k.Script(op, answers...)
				}
				for op, a := range tc.always {
					k.Always(op, a)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errTooLate)
				defer cancel()
				var got []string
				err := c.Canary(ctx, "alpha", func(reason string) { got = append(got, reason) })
				if tc.wantErr == "" {
					require.NoError(t, err)
					require.Equal(t, tc.want, got)
				} else {
					require.Error(t, err)
					require.Equal(t, tc.wantErr, nameless(err))
					require.ErrorIs(t, err, errTooLate)
					require.Equal(t, tc.want, slices.Compact(got))
				}
				require.Empty(t, k.Workspaces(), "nothing stays behind")
			})
		})
	}
}

func TestCanaryAsksForItsShard(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		var asked map[string]any
		k.Script(fakekcp.GetWorkspace, fakekcp.Workspace("", "", ""))
		require.NoError(t, c.Canary(t.Context(), "alpha", func(string) {
			asked = k.Workspace(k.Workspaces()[0]).Object
		}))
		require.Equal(t, map[string]any{
			"type":     map[string]any{"name": "universal", "path": "root"},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": "alpha"}}},
		}, asked["spec"])
	})
}

func TestCanaryMakesTheSchedulerTryAgain(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		phases := slices.Concat(slices.Repeat([]fakekcp.Answer{fakekcp.Workspace("Scheduling", "", "")}, 40),
			slices.Repeat([]fakekcp.Answer{fakekcp.Workspace("Initializing", "", "")}, 40))
		k.Script(fakekcp.GetWorkspace, phases...)
		require.NoError(t, c.Canary(t.Context(), "alpha", func(string) {}))
		require.Len(t, k.Requests(fakekcp.PatchWorkspace), 3, "after 1, 3 and 7 of the 8 s that it is not scheduled")
	})
}

// A shard gives up a workspace that its server of virtual workspaces does not know yet.
func TestCanaryReplacesAWorkspaceThatIsNotInitialized(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		var reasons []string
		k.Script(fakekcp.GetWorkspace, slices.Repeat([]fakekcp.Answer{fakekcp.Workspace("Initializing", "", "")}, 152)...)
		require.NoError(t, c.Canary(t.Context(), "alpha", func(reason string) { reasons = append(reasons, reason) }))
		require.Len(t, k.Requests(fakekcp.CreateWorkspace), 2, "another one after 30 s")
		require.True(t, slices.ContainsFunc(reasons, func(r string) bool {
			return strings.Contains(r, "kcp no longer initializes it: initializing; trying another one")
		}))
		require.Empty(t, k.Workspaces())
	})
}

func TestCanaryLeavesABusySchedulerAlone(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		for i := range 40 {
			a := fakekcp.Workspace("Scheduling", "", "")
			a.Body.(map[string]any)["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(i)
			k.Script(fakekcp.GetWorkspace, a)
		}
		require.NoError(t, c.Canary(t.Context(), "alpha", func(string) {}))
		require.Empty(t, k.Requests(fakekcp.PatchWorkspace), "a change would make the scheduler fail with a conflict")
	})
}

func TestCanaryRemovesOnlyCanariesOfItsShard(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.AddWorkspace("kcpctl-canary-old", map[string]string{canaryLabel: "alpha"})
		k.AddWorkspace("kcpctl-canary-root", map[string]string{canaryLabel: "root"})
		k.AddWorkspace("mine", nil)
		var during []string
		k.Script(fakekcp.GetWorkspace, fakekcp.Workspace("", "", ""))
		require.NoError(t, c.Canary(t.Context(), "alpha", func(string) {
			require.NoError(t, c.Canary(t.Context(), "alpha", func(string) {})) // of another run
			during = k.Workspaces()
		}))
		require.Len(t, during, 3, "the canary of another run stays")
		require.Equal(t, []string{"kcpctl-canary-root", "mine"}, k.Workspaces())

		require.NoError(t, c.Canary(t.Context(), "root", func(string) {}))
		require.Equal(t, []string{"mine"}, k.Workspaces())
	})
}

func TestCanaryIsRemovedWhenInterrupted(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.Always(fakekcp.GetWorkspace, fakekcp.Workspace("Scheduling", "", ""))
		ctx, cancel := context.WithCancel(t.Context())
		err := c.Canary(ctx, "alpha", func(string) {
			require.Len(t, k.Workspaces(), 1)
			cancel()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, k.Workspaces())
	})
}

func TestCanaryGivesUpRemovingWithoutAnAnswer(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.Always(fakekcp.DeleteWorkspaces, fakekcp.Hang())
		start := time.Now()
		require.NoError(t, c.Canary(t.Context(), "alpha", func(string) {}))
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}
