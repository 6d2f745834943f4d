package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

func TestLeaseState(t *testing.T) {
	start := testutil.Start()
	spec := func(holder string, renewed time.Duration) coordinationv1.LeaseSpec {
		at, seconds := metav1.NewMicroTime(start.Add(renewed)), int32(15)
		return coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: &seconds}
	}
	first := observe(spec("there/7/ann", 0), start)
	for name, tc := range map[string]struct {
		spec  coordinationv1.LeaseSpec
		first observation
		after time.Duration
		want  state
	}{
		"no holder":                      {coordinationv1.LeaseSpec{}, observation{}, 0, free},
		"just seen":                      {spec("there/7/ann", 0), first, 0, unknown},
		"not renewed for a while":        {spec("there/7/ann", 0), first, 14 * time.Second, unknown},
		"not renewed for its duration":   {spec("there/7/ann", 0), first, 15 * time.Second, free},
		"its clock is an hour behind":    {spec("there/7/ann", -time.Hour), observe(spec("there/7/ann", -time.Hour), start), 0, unknown},
		"renewed":                        {spec("there/7/ann", time.Second), first, 5 * time.Second, held},
		"taken by a third":               {spec("there/8/bob", 0), first, 5 * time.Second, held},
		"a dead process of this machine": {spec("host/7@here/ann", 0), observe(spec("host/7@here/ann", 0), start), 0, free},
		"a dead process of another machine with the same name": {spec("host/7@there/ann", 0), observe(spec("host/7@there/ann", 0), start), 0, unknown},
		"a process of an unknown machine":                      {spec("here/7/ann", 0), observe(spec("here/7/ann", 0), start), 0, unknown},
		"a live process of this machine":                       {spec("host/1@here/ann", 0), observe(spec("host/1@here/ann", 0), start), 0, unknown},
		"not a name that kcpctl would use":                     {spec("operator", 0), observe(spec("operator", 0), start), 0, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			got := leaseState(tc.spec, tc.first, start.Add(tc.after), "here", func(pid int) bool { return pid == 1 })
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

// A reader names the holder, unless it is certain that the process has ended.
func TestCurrent(t *testing.T) {
	start := testutil.Start()
	at := metav1.NewMicroTime(start)
	lease := func(holder string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{AcquireTime: &at, RenewTime: &at, HolderIdentity: &holder}}
		l.Annotations = map[string]string{annotationCommand: "kcpctl up"}
		return l
	}
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		want  *record.Run
	}{
		"no Lease":                       {&coordinationv1.Lease{}, nil},
		"released":                       {lease(""), nil},
		"a dead process of this machine": {lease("host/7@here/ann"), nil},
		"a live process of this machine": {lease("host/1@here/ann"), &record.Run{Command: "kcpctl up", User: "ann", Host: "host", PID: 1, Since: start.UTC(), Renewed: start.UTC()}},
		"a process of another machine":   {lease("host/7@there/ann"), &record.Run{Command: "kcpctl up", User: "ann", Host: "host", PID: 7, Since: start.UTC(), Renewed: start.UTC()}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, current(tc.lease, "here", func(pid int) bool { return pid == 1 }))
		})
	}
}

func TestALockThatExpiredDuringALogin(t *testing.T) {
	plugin := &cluster.Client{Config: &rest.Config{ExecProvider: &api.ExecConfig{Command: "kubelogin"}}}
	const says = "lost the lock: it was not renewed for 10s"
	for name, tc := range map[string]struct {
		lock *Lock
		want string
	}{
		"a renewal waits for the plugin": {&Lock{cluster: plugin, sending: true},
			says + ", because the credential plugin kubelogin, or the API server, did not answer: log in before the run"},
		"no renewal is under way": {&Lock{cluster: plugin}, says},
		"no plugin":               {&Lock{cluster: &cluster.Client{}, sending: true}, says},
	} {
		require.EqualError(t, tc.lock.expired(10*time.Second), tc.want, name)
	}
}
