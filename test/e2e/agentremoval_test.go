//go:build e2e && long && day2

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ofAgent selects the pods of the agent.
const ofAgent = "kcpctl.dev/name=widgets"

// missesShard starts the agent while a shard does not answer. The agent does not try again when it does, so up restarts
// the agent.
func (a *agents) missesShard(t *testing.T) {
	on := func(args ...string) string {
		return a.service.kubectl(append(args, "--namespace", a.service.namespace)...).run(t.Context(), t).ok(t).stdout
	}
	a.release(t, "root:late", "late")
	gamma := "deployment/" + a.name + "-shard-gamma"
	on("scale", gamma, "--replicas=0")
	on("wait", "pods", "--for=delete", "--selector", "kcpctl.dev/name=gamma", "--timeout=2m")
	on("delete", "pods", "--selector", ofAgent)
	eventually(t.Context(), t, func() error {
		logs := a.service.kubectl("logs", "--selector", ofAgent, "--tail=-1", "--namespace", a.service.namespace)
		log, err := logs.run(t.Context(), t).output() // the new pod may not run yet
		if err == nil && !strings.Contains(log, "failed to watch endpoint") {
			err = fmt.Errorf("the agent has not tried to watch the shard")
		}
		return err
	})
	on("scale", gamma, "--replicas=1")
	on("rollout", "status", gamma, "--timeout=4m")

	// The shard is ready before it answers everybody.
	a.finds(t, nil, "KCP144", "fail", "agent/widgets does not watch shard/gamma")
	require.Contains(t, a.up(t).stderr, "does not watch shard/gamma")
	a.finds(t, nil, "KCP144", "ok")
	a.serves(t, "root:late", "missed")
	a.settled(t)
	a.shown(t, 2)
}

// without returns the setup without its agent.
func (a *agents) without() string { return a.text[:strings.Index(a.text, "  agents:\n")] }

// orphans removes the agent although a workspace has a Widget. The copy stays, and the Widget can be deleted without
// the agent.
func (a *agents) orphans(t *testing.T) {
	late, below, namespace := a.in(t, "root:late"), a.below(t), a.namespace(t, "root:late")
	a.write(t, a.without())
	a.kcpctl(t, "up").refused(t, 1, "agent/widgets", "1 "+a.export()+" in root:late", "--orphan agent/widgets")
	a.up(t, "--orphan", "agent/widgets")
	require.Empty(t, a.service.list(t.Context(), t, "pods", "--namespace", a.service.namespace, "--selector", ofAgent))
	o, err := a.of(late, "default").Get(t.Context(), "missed", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, o.GetFinalizers())
	_, err = a.of(below, namespace).Get(t.Context(), "missed", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, a.of(late, "default").Delete(t.Context(), "missed", metav1.DeleteOptions{}))
	a.gone(t, a.of(late, "default"), "missed")
	require.NoError(t, a.of(below, namespace).Delete(t.Context(), "missed", metav1.DeleteOptions{}))
	a.write(t, a.text)
	a.up(t)
}

// prunes removes the agent with the APIBindings of its consumers. kcp deletes the Widgets, and the agent their copies,
// before it ends.
func (a *agents) prunes(t *testing.T) {
	a.serves(t, consumer, "pruned")
	below, namespace := a.below(t), a.namespace(t, consumer)
	a.write(t, a.without())
	a.up(t, "--prune-data", "agent/widgets")
	a.gone(t, a.of(below, namespace), "pruned")
	require.Empty(t, a.service.list(t.Context(), t, "pods", "--namespace", a.service.namespace, "--selector", ofAgent))
	r := a.kubectlAs(t, []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", consumer}, "get", "apibindings", "--output", "name")
	require.NotContains(t, r.ok(t).stdout, a.export())
}
