package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// The delays of corrections grow, the third one in a row makes the object contended, and one that stays for a minute ends
// that.
func TestContention(t *testing.T) {
	start := time.Unix(0, 0)
	for _, c := range []struct {
		name string
		// corrections and now are in seconds after the start.
		corrections []int
		now         int
		wait        time.Duration
		contended   bool
		ends        bool
	}{
		{"none", nil, 0, 0, false, false},
		{"one", []int{0}, 0, time.Second, false, false},
		{"two", []int{0, 1}, 1, 2 * time.Second, false, false},
		{"three", []int{0, 1, 3}, 3, 4 * time.Second, true, false},
		{"three, a part of the delay", []int{0, 1, 3}, 5, 2 * time.Second, true, false},
		{"three, later", []int{0, 1, 3}, 9, 0, true, false},
		{"many", []int{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1000, 2000}, 2000, 5 * time.Minute, true, false},
		{"looked at too early", []int{0, 1, 3}, 62, 0, true, false},
		{"stays for a minute", []int{0, 1, 3}, 63, 0, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
			var a applied
			for _, s := range c.corrections {
				a.correct([]string{"argo"}, at(s))
			}
			require.Equal(t, c.ends, a.stays(at(c.now)))
			require.Equal(t, c.wait, a.wait(at(c.now)))
			require.Equal(t, c.contended, a.contended())
		})
	}
}

// Two clients that change the same field do not write as fast as they can, and the user sees who the other one is.
func TestACorrectionThatNeverStaysIsReported(t *testing.T) {
	s := newSides(t)
	var now atomic.Int64
	now.Store(time.Now().Unix())
	s.now = func() time.Time { return time.Unix(now.Load(), 0) }
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	change := func() {
		s.physical.Apply(t, "", deployments, fmt.Sprintf(`
metadata: {name: web, namespace: %s, 
  managedFields: [{manager: kcpctl-syncer}, {manager: keda, subresource: scale}, {manager: kubelet, subresource: status}, {manager: argo}]}
spec: {replicas: 9}`, namespaceOf("1a")))
	}
	corrected := func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "1" }
	for range contendedAfter {
		change()
		late := 0 // the delay of a correction begins when the syncer has recorded the one before
		s.eventually(func() bool {
			if !corrected() && late < 4 {
				now.Add(1)
				late++
			}
			return corrected()
		}, "corrected")
	}
	const want = "False ContendedField: field manager argo, keda changes the object in cluster c1 repeatedly"
	s.eventually(func() bool { return strings.HasPrefix(s.condition("1a", "web"), want) }, "reported")
	s.physical.Writes()
	change()
	s.physical.Apply(t, "", deployments, fmt.Sprintf(`{metadata: {name: web, namespace: %s}, status: {readyReplicas: 9}}`, namespaceOf("1a")))
	s.eventually(func() bool {
		return field(s.kcp.Get("1a", deployments, "shop", "web--c1"), "status", "readyReplicas") == "9"
	}, "the status comes up")
	require.Empty(t, s.physical.Writes(), "the clock stands, so that the correction waits")
	now.Add(4)
	s.eventually(corrected, "the delay has ended")

	change()
	s.leaf("1a", "web", "{replicas: 1, paused: true}")
	s.eventually(corrected, "a change of the user does not wait")
	require.True(t, strings.HasPrefix(s.condition("1a", "web"), want))
	now.Add(61)
	s.physical.Apply(t, "", deployments, fmt.Sprintf(`{metadata: {name: web, namespace: %s}, status: {readyReplicas: 1}}`, namespaceOf("1a")))
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "the correction has stayed")
}

// What other clients set that the user has not is theirs.
func TestFieldsOfOthersAreNotContended(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	for n := range 2 * contendedAfter {
		s.physical.Writes()
		s.physical.Apply(t, "", deployments, fmt.Sprintf(
			`{metadata: {name: web, namespace: %s}, spec: {revisionHistoryLimit: %d}}`, namespaceOf("1a"), n))
		s.eventually(func() bool { return len(s.physical.Writes()) > 0 }, "applied")
	}
	s.leaf("1a", "web", "{replicas: 2}")
	s.eventually(func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "2" }, "applied")
	require.Equal(t, "True Synced: ", s.condition("1a", "web"))
}

// Controllers of the cluster keep these objects in each namespace: a leaf would be changed back indefinitely.
func TestWhatEachNamespaceHasIsNotReplaced(t *testing.T) {
	s := newSides(t)
	s.start()
	for _, name := range []string{"kube-root-ca.crt", "mine"} {
		s.kcp.Apply(t, "1a", configMaps, `
apiVersion: v1
kind: ConfigMap
metadata: {name: `+name+`--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: `+name+`}}`)
	}
	s.eventually(func() bool {
		leaf := s.kcp.Get("1a", configMaps, "shop", "kube-root-ca.crt--c1")
		refused := strings.HasPrefix(leaf.GetAnnotations()[api.AnnotationSyncError], api.ReasonNameCollision+": ")
		return s.below("1a", configMaps, "mine") != nil && refused
	}, "refused, and others are not")
	require.Nil(t, s.below("1a", configMaps, "kube-root-ca.crt"))
}

// An error that lasts is a condition, with what the cluster says, until it ends.
func TestLastingErrorsAreReported(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGatewayTimeout} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			s := newSides(t)
			var tries atomic.Int64
			s.physical.Refuse(func(r *http.Request) (int, string) {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/") {
					// The message differs each time: it must not make more writes, which would bring the leaf back at
					// once.
					return code, fmt.Sprintf(`failed calling webhook "w.example.com": try %d`, tries.Add(1))
				}
				return 0, ""
			})
			s.start()
			s.leaf("1a", "web", "{replicas: 1}")
			s.eventually(func() bool {
				c := s.condition("1a", "web")
				return strings.HasPrefix(c, "False Retrying: apply deployments.apps") && strings.Contains(c, "w.example.com")
			}, "reported")
			require.GreaterOrEqual(t, tries.Load(), int64(reportedAfter), "not at once")
			seen := tries.Load()
			s.eventually(func() bool { return tries.Load() >= seen+2 }, "it is tried again")
			require.Len(t, slices.DeleteFunc(s.kcp.Writes(), func(w string) bool { return !strings.HasSuffix(w, " status") }), 1, "written once")
			s.physical.Refuse(nil)
			s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "it ends")
		})
	}
}

// An API server lists what is invalid in the order of a map.
func TestARefusalWhoseTextDiffersIsWrittenOnce(t *testing.T) {
	s := newSides(t)
	var tries, ahead atomic.Int64
	s.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/web") {
			return http.StatusUnprocessableEntity, fmt.Sprintf("Deployment.apps web is invalid: try %d", tries.Add(1))
		}
		return 0, ""
	})
	s.start()
	writes, again := 0, 0
	written := func() int {
		for _, w := range s.kcp.Writes() {
			if strings.HasSuffix(w, "shop/web--c1 status") {
				writes++
			}
		}
		return writes
	}
	tried := func() { // the leaf changes in a way that does not concern the cluster
		t.Helper()
		seen := tries.Load()
		again++
		s.kcp.Apply(t, "1a", deployments, fmt.Sprintf(`{metadata: {name: web--c1, namespace: shop, annotations: {workloads.kcp.dev/x: "%d"}}}`, again))
		s.eventually(func() bool { return tries.Load() > seen }, "tried again")
	}
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") != "" }, "written")
	for range 10 {
		tried()
	}
	require.LessOrEqual(t, written(), 2, "the first one can be repeated while the watch is late")
	seen := written()
	s.leaf("1a", "web", "{replicas: 2}")
	s.eventually(func() bool { return written() > seen }, "the leaf has changed")
	seen = written()
	ahead.Store(int64(refused.Interval))
	tried()
	s.eventually(func() bool { return written() > seen }, "the text is renewed")
}

// The report of an error has time, also if the object has used its own.
func TestATimeoutIsReported(t *testing.T) {
	s := newSides(t)
	k := s.sweeper(s.kcp.URL)
	s.leaf("1a", "web", "{replicas: 1}")
	r := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	i := item{r, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web--c1"}}
	leaf := watch.Object{Unstructured: s.kcp.Get("1a", deployments, "shop", "web--c1"), Endpoint: s.kcp.URL}
	for range reportedAfter - 1 {
		k.queue.AddRateLimited(i)
	}
	cause := errors.New("the cluster does not answer")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, k.retrying(over, i, leaf, cause), cause)
	require.NotContains(t, s.condition("1a", "web"), api.ReasonRetrying, "the syncer stops")
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	require.ErrorIs(t, k.retrying(late, i, leaf, cause), cause)
	require.Equal(t, "False Retrying: the cluster does not answer. It is tried again, at least every 30s", s.condition("1a", "web"))
}

// What runs stays and is seen, also if the cluster does not permit the present leaf.
func TestTheStatusOfARefusedObjectComesUp(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	s.leaf("1a", "web", "{replicas: 2, template: {spec: {nodeName: n1}}}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("1a", "web"), "False NotAllowed: nodeName n1") }, "refused")
	s.physical.Apply(t, "", deployments, fmt.Sprintf(`{metadata: {name: web, namespace: %s}, status: {readyReplicas: 1}}`, namespaceOf("1a")))
	s.eventually(func() bool {
		return field(s.kcp.Get("1a", deployments, "shop", "web--c1"), "status", "readyReplicas") == "1"
	}, "the status comes up")
	require.Equal(t, "1", field(s.below("1a", deployments, "web"), "spec", "replicas"))
}
