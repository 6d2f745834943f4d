package cmd

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The last line of an upgrade says what was not upgraded.
func TestUpgradeSaysWhatKeepsItsImage(t *testing.T) {
	for spec, want := range map[string]string{
		"version: v0.32.3, shards: [{name: alpha}]":                                                                  "now runs v0.32.3.",
		"version: v0.32.3, shards: [{name: alpha, image: {tag: v0.31.6}}]":                                           "now runs v0.32.3, except shard/alpha (ghcr.io/kcp-dev/kcp:v0.31.6).",
		"version: v0.32.3, frontProxies: [{name: main, image: {tag: main}}]":                                         "now runs v0.32.3, except front-proxy/main (ghcr.io/kcp-dev/kcp:main).",
		"version: v0.32.3, virtualWorkspaces: [{name: own, command: [/own], image: {repository: own, tag: v1.0.0}}]": "now runs v0.32.3.",
	} {
		env, _, errs := fakeEnv()
		o := &upgradeOptions{env: env, version: "v0.32.3"}
		s := &session{topology: topologytest.Build(t, "spec: {"+spec+"}\n")}
		o.printResult(s, &deploy.Result{Plan: &plan.Plan{Items: []plan.Item{{Action: plan.Change}}}})
		require.Contains(t, errs.String(), want)
		o.printResult(s, &deploy.Result{Plan: &plan.Plan{}})
		require.Contains(t, errs.String(), "already runs v0.32.3")
	}
}

// An error before the edit of the file keeps its own next step. Afterwards, the way back is one that exists.
func TestUpgradeExplainsTheWayBack(t *testing.T) {
	refused := clierr.New(clierr.Failed, "upgrade to the last v0.31 first", "root-shard runs kcp v0.30.3")
	of := func(written bool, spec, from string) string {
		o := &upgradeOptions{}
		o.setup.file = "kcp.yaml"
		s := &session{topology: topologytest.Build(t, "spec: {"+spec+"}\n"), written: written}
		err := o.explain(refused, s, from)
		require.True(t, errors.Is(err, refused))
		return clierr.Hint(err)
	}
	require.Equal(t, "upgrade to the last v0.31 first", of(false, "version: v0.32.3", "v0.30.3"))
	require.Contains(t, of(true, "version: v0.30.3", "v0.29.3"), "to go back, set spec.version to v0.29.3 in kcp.yaml")
	embedded := of(true, "version: v0.30.3, shards: [{name: alpha, etcd: {embedded: {}}}]", "v0.29.3")
	require.Contains(t, embedded, "as in shard/alpha, it cannot go back to v0.29.3 without a backup")
	require.NotContains(t, embedded, "--allow")
}

// Completion offers the releases that follow what runs, and not what the setup file says.
func TestUpgradeOffersWhatTheCommandAccepts(t *testing.T) {
	of := func(spec string) string { return topologytest.Header + "spec: {" + spec + "}\n" }
	offered := func(runs, file string) []string {
		t.Helper()
		rt, path := applied(t, of(runs), of(file))
		env, _, _ := fakeEnv()
		openAs(env, rt)
		f, err := setup.Load(path, nil)
		require.NoError(t, err)
		o := &upgradeOptions{env: env}
		o.setup.file = path
		s, err := (&session{env: env, flags: &o.setup, reporter: &reporter{env: env}}).with(f)
		require.NoError(t, err)
		return o.candidates(s)
	}
	require.Equal(t, []string{"v0.32.0", "v0.32.3"}, offered("version: v0.31.6", "version: v0.31.6"))
	require.Equal(t, []string{"v0.31.6", "v0.32.0", "v0.32.3"}, offered("version: v0.31.6", "version: v0.30.0"), "edited, not applied")
	require.Equal(t, []string{"v0.31.6", "v0.32.0", "v0.32.3"}, offered("version: v0.31.6", "version: v0.32.3"), "interrupted: on, or back")
	require.Equal(t, []string{"v0.32.3"}, offered("version: v0.32.3", "version: v0.30.0"), "the file is behind")
	require.Empty(t, offered("version: v0.32.3", "version: v0.32.3"))
	require.Empty(t, offered("version: v0.31.6", "version: v0.31.6, image: {tag: main}"), "no server would be upgraded")
}

// Without its record, an installation that runs is not upgraded, and the error says how to get the record back.
func TestUpgradeSaysThatTheRecordIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := topologytest.Header + "spec: {version: v0.32.0}\n"
		rt, path := applied(t, text, text)
		rt.ForgetRecord()
		_, _, err := typed(t, rt, path, "upgrade v0.32.3")
		require.ErrorContains(t, err, "the record of its installation does not exist")
		require.NotContains(t, err.Error(), "there is no kcp")
		require.Contains(t, clierr.Hint(err), "run kcpctl up with the setup file that was applied last")

		_, _, err = typed(t, rt, path, "up")
		require.NoError(t, err)
		known, err := rt.Record(t.Context())
		require.NoError(t, err)
		require.False(t, known.Empty(), "the next step of the error makes the record again")
	})
}
