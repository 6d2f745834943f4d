package faults

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/test/standin"
)

// nothingToDo is part of the output of an up without changes.
const nothingToDo = "0 changes"

// added is the name of the added shard.
const added = "gamma"

// state is the state of a place before a command.
type state struct {
	file      string
	stored    stored
	inventory *unstructured.Unstructured // nil if it did not exist
}

func (p *place) state(t *testing.T) *state {
	t.Helper()
	file, err := os.ReadFile(p.file())
	require.NoError(t, err)
	out := &state{file: string(file)}
	out.stored, err = p.stored(t.Context())
	require.NoError(t, err)
	if _, ok := out.stored[inventoryKey]; ok {
		out.inventory, err = shared.Admin.Resource(standin.Secrets).Namespace(p.Namespace).Get(t.Context(), inventoryName, metav1.GetOptions{})
		require.NoError(t, err)
	}
	return out
}

// The names of the objects that kcpctl keeps for itself.
const (
	pkiName       = setupName + "-pki"
	lockName      = setupName + "-lock"
	inventoryName = setupName + "-inventory"
	serialName    = setupName + "-serial"
	pkiKey        = "secrets/" + pkiName
	inventoryKey  = "secrets/" + inventoryName
)

// finished requires that nothing is left to do after the last run of a scenario's command.
func (p *place) finished(t *testing.T, before *state, sc *scenario, last result) {
	t.Helper()
	if !strings.Contains(last.output, nothingToDo) {
		require.Contains(t, p.kcpctl(t, nil, "up").ok(t).output, nothingToDo)
	}
	if sc.check != nil {
		sc.check(t, p, before)
	}
	require.Empty(t, p.Kcp.Workspaces(), "workspaces of canaries remain")
	p.runsAsStored(t)
	secret, err := shared.Admin.Resource(standin.Secrets).Namespace(p.Namespace).Get(t.Context(), pkiName, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, shared.keys.caughtUp(t.Context(), p.Namespace, secret.GetResourceVersion()))
	require.Empty(t, p.Problems())
}

// runsAsStored requires that every pod has read the stored files in their current version.
func (p *place) runsAsStored(t *testing.T) {
	t.Helper()
	now, err := p.stored(t.Context())
	require.NoError(t, err)
	for name, pod := range p.Running() {
		files, err := now.mountedBy(pod.Pod)
		require.NoError(t, err)
		require.Equal(t, len(files), len(pod.Files))
		for path := range files {
			require.True(t, bytes.Equal(files[path], pod.Files[path]), "pod %s runs with an old %s", name, path)
		}
	}
}

// released requires that the lock is free, unless its holder was killed: the next run then takes it.
func (p *place) released(t *testing.T, f *fault) {
	t.Helper()
	l, err := shared.Admin.Resource(leases).Namespace(p.Namespace).Get(t.Context(), lockName, metav1.GetOptions{})
	require.NoError(t, err)
	holder, _, _ := unstructured.NestedString(l.Object, "spec", "holderIdentity")
	require.True(t, holder == "" || f.kills, "%s holds the lock", holder)
}

// hasShard requires that the setup file has the shard once, and has not changed otherwise.
func hasShard(t *testing.T, p *place, before *state) {
	was, now := strings.SplitAfter(before.file, "\n"), strings.SplitAfter(p.state(t).file, "\n")
	require.Equal(t, 1, strings.Count(strings.Join(now, ""), "name: "+added))
	at := 0
	for at < len(was) && was[at] == now[at] {
		at++
	}
	rest := len(was) - at
	require.Equal(t, was[at:], now[len(now)-rest:], "the file has changes besides the new shard")
}

// withoutShard removes the shard and everything that was created for it.
func withoutShard(t *testing.T, p *place, before *state) {
	selector := metav1.ListOptions{LabelSelector: topology.LabelName + "=" + added}
	for _, r := range append(written(), standin.Pods) {
		require.NoError(t, shared.Admin.Resource(r).Namespace(p.Namespace).
			DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, selector))
	}
	for name, pod := range p.Running() {
		if pod.Component.Name() == added {
			p.End(name)
		}
	}
	p.Kcp.Unregister(added)
	require.NoError(t, os.WriteFile(p.file(), []byte(before.file), 0o600))
	client := shared.Admin.Resource(standin.Secrets).Namespace(p.Namespace)
	now, err := client.Get(t.Context(), inventoryName, metav1.GetOptions{})
	require.NoError(t, err)
	before.inventory.SetResourceVersion(now.GetResourceVersion())
	_, err = client.Update(t.Context(), before.inventory, metav1.UpdateOptions{FieldManager: topology.ManagedBy})
	require.NoError(t, err)
	// The cluster has noted the number of a later record.
	require.NoError(t, shared.Admin.Resource(standin.ConfigMaps).Namespace(p.Namespace).Delete(t.Context(), serialName, metav1.DeleteOptions{}))
}

// hasRenewed requires that every certificate was renewed, by the same authorities.
func hasRenewed(t *testing.T, p *place, before *state) {
	now := p.state(t).stored
	for name, was := range before.stored {
		for key := range was {
			switch {
			case name == pkiKey:
				require.True(t, bytes.Equal(was[key], now[name][key]), "%s of the PKI has changed", key)
			case key == "tls.crt":
				require.False(t, bytes.Equal(was[key], now[name][key]), "%s was not renewed", name)
			}
		}
	}
}

// asItIs keeps a place for the next case: certificates can be renewed again.
func asItIs(*testing.T, *place, *state) {}
