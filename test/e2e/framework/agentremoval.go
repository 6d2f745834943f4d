package framework

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OfAgent selects the pods of the agent.
const OfAgent = "kcpctl.dev/name=widgets"

// MissesShard starts the agent while a shard does not answer. The agent does not try again when it does, so up restarts
// the agent.
func (a *Agents) MissesShard(t *testing.T) {
	on := func(c *Cluster, args ...string) {
		c.Kubectl(append(args, "--namespace", c.Namespace)...).Run(t.Context(), t).OK(t)
	}
	a.Release(t, "root:late", "late")
	gamma := "deployment/" + a.Name + "-shard-gamma"
	on(a.Kcp, "scale", gamma, "--replicas=0")
	on(a.Kcp, "wait", "pods", "--for=delete", "--selector", "kcpctl.dev/name=gamma", "--timeout=2m")
	on(a.Service, "delete", "pods", "--selector", OfAgent)
	Eventually(t.Context(), t, func() error {
		logs := a.Service.Kubectl("logs", "--selector", OfAgent, "--tail=-1", "--namespace", a.Service.Namespace)
		log, err := logs.Run(t.Context(), t).Output() // the new pod may not run yet
		if err == nil && !strings.Contains(log, "failed to watch endpoint") {
			err = fmt.Errorf("the agent has not tried to watch the shard")
		}
		return err
	})
	on(a.Kcp, "scale", gamma, "--replicas=1")
	on(a.Kcp, "rollout", "status", gamma, "--timeout=4m")

	// The shard is ready before it answers everybody.
	a.Finds(t, nil, "KCP144", "fail", "agent/widgets does not watch shard/gamma")
	require.Contains(t, a.Up(t).Stderr, "does not watch shard/gamma")
	a.Finds(t, nil, "KCP144", "ok")
	a.Serves(t, "root:late", "missed")
	a.Settled(t)
	a.Shown(t, 2)
}

// Without returns the setup without its agent.
func (a *Agents) Without() string { return a.Text[:strings.Index(a.Text, "  agents:\n")] }

// Orphans removes the agent although a workspace has a Widget. The copy stays, and the Widget can be deleted without
// the agent.
func (a *Agents) Orphans(t *testing.T) {
	late, below, namespace := a.In(t, "root:late"), a.Below(t), a.Namespace(t, "root:late")
	a.Write(t, a.Without())
	a.Kcpctl(t, "up").Refused(t, 1, "agent/widgets", "1 "+a.Export()+" in root:late", "--orphan agent/widgets")
	a.Up(t, "--orphan", "agent/widgets")
	require.Empty(t, a.Service.List(t.Context(), t, "pods", "--namespace", a.Service.Namespace, "--selector", OfAgent))
	o, err := a.Of(late, "default").Get(t.Context(), "missed", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, o.GetFinalizers())
	_, err = a.Of(below, namespace).Get(t.Context(), "missed", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, a.Of(late, "default").Delete(t.Context(), "missed", metav1.DeleteOptions{}))
	a.gone(t, a.Of(late, "default"), "missed")
	require.NoError(t, a.Of(below, namespace).Delete(t.Context(), "missed", metav1.DeleteOptions{}))
	a.Write(t, a.Text)
	a.Up(t)
}

// Prunes removes the agent with the APIBindings of its consumers. kcp deletes the Widgets, and the agent their copies,
// before it ends.
func (a *Agents) Prunes(t *testing.T) {
	a.Serves(t, Consumer, "pruned")
	below, namespace := a.Below(t), a.Namespace(t, Consumer)
	a.Write(t, a.Without())
	a.Up(t, "--prune-data", "agent/widgets")
	a.gone(t, a.Of(below, namespace), "pruned")
	require.Empty(t, a.Service.List(t.Context(), t, "pods", "--namespace", a.Service.Namespace, "--selector", OfAgent))
	r := a.KubectlAs(t, []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", Consumer}, "get", "apibindings", "--output", "name")
	require.NotContains(t, r.OK(t).Stdout, a.Export())
}
