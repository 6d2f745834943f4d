package kube

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/testutil"
)

func TestJudge(t *testing.T) {
	start := testutil.Start()
	spec := func(holder string, renewed time.Duration) coordinationv1.LeaseSpec {
		at, seconds := metav1.NewMicroTime(start.Add(renewed)), int32(15)
		return coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: &seconds}
	}
	first := sight(spec("there/7/ann", 0), start)
	for name, tc := range map[string]struct {
		spec  coordinationv1.LeaseSpec
		first sighting
		after time.Duration
		want  verdict
	}{
		"nobody":                         {coordinationv1.LeaseSpec{}, sighting{}, 0, free},
		"just seen":                      {spec("there/7/ann", 0), first, 0, unknown},
		"not renewed for a while":        {spec("there/7/ann", 0), first, 14 * time.Second, unknown},
		"not renewed for its duration":   {spec("there/7/ann", 0), first, 15 * time.Second, free},
		"its clock is an hour behind":    {spec("there/7/ann", -time.Hour), sight(spec("there/7/ann", -time.Hour), start), 0, unknown},
		"renewed":                        {spec("there/7/ann", time.Second), first, 5 * time.Second, held},
		"taken by a third":               {spec("there/8/bob", 0), first, 5 * time.Second, held},
		"a dead process of this machine": {spec("host/7@here/ann", 0), sight(spec("host/7@here/ann", 0), start), 0, free},
		"a dead process of another machine with the same name": {spec("host/7@there/ann", 0), sight(spec("host/7@there/ann", 0), start), 0, unknown},
		"a process of an unknown machine":                      {spec("here/7/ann", 0), sight(spec("here/7/ann", 0), start), 0, unknown},
		"a live process of this machine":                       {spec("host/1@here/ann", 0), sight(spec("host/1@here/ann", 0), start), 0, unknown},
		"not a name that kcpctl would use":                     {spec("operator", 0), sight(spec("operator", 0), start), 0, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.spec, tc.first, start.Add(tc.after), "here", func(pid int) bool { return pid == 1 })
			require.Equal(t, tc.want, got)
		})
	}
}

func TestHolderSurvivesItsName(t *testing.T) {
	h := Holder{Host: "host", PID: 17, Machine: "9f3c1a2b", User: "dom/ain"}
	require.Equal(t, h, parseHolder(h.String()))
	require.Equal(t, Holder{Host: "some/body"}, parseHolder("some/body"))
}

func TestIsAlive(t *testing.T) {
	require.True(t, isAlive(1))
	require.False(t, isAlive(1<<22+1), "above the largest PID of Linux")
}

// An answer that comes late may come after the end of the Lease.
func TestLockTakenTooLate(t *testing.T) {
	const all, one = "/apis/coordination.k8s.io/v1/namespaces/kcp/leases", "/apis/coordination.k8s.io/v1/namespaces/kcp/leases/demo-lock"
	lease := func(holder string) answer {
		return answer{http.StatusOK, fmt.Sprintf(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": {"name": "demo-lock", "namespace": "kcp", "resourceVersion": "1"},
			"spec": {"holderIdentity": %q, "acquireTime": "2026-11-20T12:00:00.000000Z"}}`, holder)}
	}
	r, made := scripted(t, map[string][]answer{
		"GET /api/v1/namespaces/kube-system": {{http.StatusOK, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}`}},
		"GET " + one:                         {refuse(http.StatusNotFound, "NotFound"), lease("there/8@far/bob")},
		"POST " + all:                        {lease("here/7@near/ann")},
		"PUT " + one:                         {refuse(http.StatusConflict, "Conflict")},
	})
	now := testutil.Start()
	r.options.Now = func() time.Time {
		if len(*made) > 2 { // the Lease was taken, and the answer took a while
			return now.Add(leaseDuration)
		}
		return now
	}
	_, _, err := r.Lock(t.Context())
	require.ErrorIs(t, err, errLockLost)
	require.ErrorContains(t, err, "there/8@far/bob has taken it")
}
