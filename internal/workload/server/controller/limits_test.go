package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// A text that is cut is the same each time: it is not written again.
func TestAConditionThatIsCutIsWrittenOnce(t *testing.T) {
	c := metav1.Condition{Type: api.ConditionReady, Status: metav1.ConditionFalse, Reason: api.ReasonUnreachable, Message: strings.Repeat("ä", 10000)}
	d := &draft{Cluster: &api.Cluster{}}
	d.set(c, time.Now())
	require.True(t, d.changed())
	written := confined(d.next)
	require.LessOrEqual(t, len(written.Conditions[0].Message), maxMessage)
	patch, err := statusPatch(&written, &d.next)
	require.NoError(t, err)
	require.Empty(t, patch)
	d = &draft{Cluster: &api.Cluster{Status: written}, next: written}
	d.set(c, time.Now())
	require.False(t, d.changed())
}
