package framework

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// Killed kills up at several moments after it has begun to write the objects of the agent.
func (a *Agents) Killed(t *testing.T) {
	for _, after := range []time.Duration{0, 150 * time.Millisecond, 400 * time.Millisecond, time.Second} {
		r := a.Command("up", "--output", "json", "--skip-canary").During(t, 1, Running("agent/widgets"), func(up *exec.Cmd) {
			time.Sleep(after)
			require.NoError(t, up.Process.Kill())
		})
		if after > 0 && r.Code == 0 { // what earlier runs have started was ready at once
			t.Logf("up was done before %s", after)
			continue
		}
		require.Equal(t, -1, r.Code, r.Stderr)
	}
}

// Empties deletes Widgets of the consumer, and waits until they and their copies are gone.
func (a *Agents) Empties(t *testing.T, which metav1.ListOptions) {
	t.Helper()
	client, copies := a.Of(a.In(t, Consumer), "default"), a.Of(a.Below(t), a.Namespace(t, Consumer))
	require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, which))
	for _, in := range []dynamic.ResourceInterface{client, copies} {
		Eventually(t.Context(), t, func() error {
			list, err := in.List(t.Context(), which)
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d Widgets are still there", len(list.Items))
			}
			return err
		})
	}
}
