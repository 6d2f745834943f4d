package schedule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	podresource "k8s.io/component-helpers/resource"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

type candidate struct {
	Cluster
	// ok means that the cluster has a share in the goal.
	ok bool
	// lost means that the share of the cluster is kept, and does not count.
	lost bool
	// gone means that its Cluster does not exist, and that no other cluster runs its share, or has its data.
	gone   bool
	reason string
	weight int64
	room   int64 // for more replicas
	most   int64 // the largest share
}

// judge returns whether a cluster is a candidate, and why. What a user or an administrator says about the cluster
// excludes it. Anything else that is missing, such as an answer, keeps only new replicas away.
func (a *assignment) judge(c Cluster) *candidate {
	share, has := a.previous[c.Name]
	if has && (a.workload.Pinned || a.workload.Finished) {
		reason := "has the data of the workload"
		if a.workload.Finished {
			reason = "has run the workload to its end"
		}
		return &candidate{Cluster: c, ok: true, reason: reason, most: math.MaxInt64}
	}
	if reason := a.excluded(c); reason != "" {
		return &candidate{Cluster: c, reason: reason}
	}
	reason := a.unavailable(c)
	switch {
	case reason == "":
		return &candidate{Cluster: c, ok: true, reason: "is a candidate", most: math.MaxInt64}
	case !has:
		return &candidate{Cluster: c, reason: reason}
	case c.Lost:
		return &candidate{Cluster: c, lost: true, reason: reason + ": other clusters run its share, too"}
	}
	return &candidate{Cluster: c, ok: true, reason: reason + ": keeps what it has", most: share.Replicas}
}

const noCluster = "there is no Cluster of this name"

// missing returns the candidate for a share whose Cluster does not exist: it was lost, such as with a restored backup,
// because a Cluster that is removed by a command waits for its leaves.
func (a *assignment) missing(name string) *candidate {
	if a.workload.Alone || a.workload.Pinned || a.workload.Finished {
		return &candidate{Cluster: Cluster{Name: name}, ok: true, reason: noCluster + ": keeps what it has",
			most: a.previous[name].Replicas, gone: !a.workload.Finished}
	}
	return &candidate{Cluster: Cluster{Name: name}, lost: true,
		reason: noCluster + ": other clusters run its share, too"}
}

// excluded returns why a user or an administrator excludes a cluster. It is empty if none of them does.
func (a *assignment) excluded(c Cluster) string {
	h := a.workload.Hints
	switch {
	case c.Access == Refused:
		return "the workspace may not use it"
	case a.workload.Home != "" && a.workload.Home != c.Name:
		return fmt.Sprintf("the data of the workload is on cluster %s", a.workload.Home)
	case h.ClusterSelector != nil && !h.ClusterSelector.Matches(labels.Set(c.Labels)):
		return fmt.Sprintf("its labels do not match %s", h.ClusterSelector)
	case h.Weights != nil && h.Weights[c.Name] == 0:
		return "it has no weight in " + api.AnnotationWeights
	case c.Draining:
		return "it is drained"
	}
	return ""
}

// unavailable returns why nothing new is scheduled to a cluster. It is empty if it is.
func (a *assignment) unavailable(c Cluster) string {
	h := a.workload.Hints
	switch {
	case c.Lost:
		return c.notReady() + " for longer than evictAfter"
	case !c.API.State.Serves():
		return string(c.API.State) + ": " + c.API.Message
	case !c.Ready:
		return c.notReady()
	case c.Unschedulable:
		return "it is cordoned"
	case c.Access == Unknown:
		return "it is not known yet whether the workspace may use it"
	case h.Affinity != nil && !a.workload.Affine[c.Name]:
		return fmt.Sprintf("no object there matches the affinity %s", h.Affinity)
	case h.AntiAffinity != nil && a.workload.AntiAffine[c.Name]:
		return fmt.Sprintf("an object there matches the anti-affinity %s", h.AntiAffinity)
	}
	return ""
}

func (c *Cluster) notReady() string {
	if c.Problem == "" {
		return "it is not ready"
	}
	return "it is not ready (" + c.Problem + ")"
}

// weigh sets the weights of candidates: explicit ones, else how many replicas a cluster has room for, else one.
func (a *assignment) weigh() {
	known, room := true, int64(0)
	for _, c := range a.chosen() {
		c.weight = a.previous[c.Name].Replicas
		if c.most == math.MaxInt64 {
			known = known && c.Free != nil
			c.room = a.room(c)
			c.weight += c.room
		}
		room += c.weight
	}
	switch {
	case a.workload.Hints.Weights != nil:
		for _, c := range a.chosen() {
			c.weight = a.workload.Hints.Weights[c.Name]
		}
		return
	case known && room > 0:
		a.byRoom = true
		for _, c := range a.chosen() {
			if c.weight == 0 {
				c.reason = "has no room for a replica"
			}
		}
		return
	case known:
		a.full = true
	}
	for _, c := range a.chosen() {
		c.weight = 1
	}
}

type request struct {
	name   corev1.ResourceName
	amount float64
}

func (a *assignment) requests() []request {
	out := []request{{corev1.ResourcePods, 1}}
	for name, q := range a.workload.Requests {
		if name != corev1.ResourcePods && q.Sign() > 0 {
			out = append(out, request{name, q.AsApproximateFloat64()})
		}
	}
	return out
}

func (a *assignment) room(c *candidate) int64 {
	fits := int64(math.MaxInt32)
	for _, r := range a.requested {
		free, ok := c.Free[r.name]
		if !ok && r.name == corev1.ResourcePods {
			continue
		}
		fits = min(fits, max(0, int64(free.AsApproximateFloat64()/r.amount)))
	}
	return fits
}

// Free returns the resources of a cluster that pods can still request. Reserved is what was scheduled to it and is not
// yet in its requested resources: without it, decisions shortly after each other would all choose the same cluster. It
// returns nil if the capacity is unknown.
func Free(capacity *api.Capacity, reserved corev1.ResourceList) corev1.ResourceList {
	if capacity == nil {
		return nil
	}
	free := corev1.ResourceList{}
	for name, q := range capacity.Allocatable {
		left := q.DeepCopy()
		left.Sub(capacity.Requested[name])
		left.Sub(reserved[name])
		free[name] = left
	}
	return free
}

// Requests returns what a pod requests from its node, and that it is one pod.
func Requests(spec *corev1.PodSpec) corev1.ResourceList {
	total := podresource.PodRequests(&corev1.Pod{Spec: *spec}, podresource.PodResourcesOptions{})
	total[corev1.ResourcePods] = resource.MustParse("1")
	return total
}

// Add adds resources n times to others.
func Add(to, more corev1.ResourceList, n int64) {
	for name, q := range more {
		all, sum := q.DeepCopy(), to[name].DeepCopy()
		all.Mul(n) // without an overflow, however many replicas a user wants
		sum.Add(all)
		to[name] = sum
	}
}

// Spread is how a workload is spread over clusters.
type Spread string

const (
	// Divide divides the replicas.
	Divide Spread = "Divide"
	// Duplicate runs the whole workload on each cluster.
	Duplicate Spread = "Duplicate"
	// Single runs it on one cluster, and moves it only if that one is lost.
	Single Spread = "Single"
)

// Hints are the requests of a user in annotations.
type Hints struct {
	Spread Spread
	// ClusterSelector selects clusters, Affinity and AntiAffinity select objects of other workloads in the same
	// namespace. They are nil if they are not set.
	ClusterSelector, Affinity, AntiAffinity labels.Selector
	// Weights are nil if they are not set. Clusters that are not listed get nothing.
	Weights map[string]int64
	// MaxClusters is zero if it is not set.
	MaxClusters int
	// Failover is empty if it is not set, and FailoverAfter is zero if the time of each cluster applies.
	Failover      api.Failover
	FailoverAfter time.Duration
}

// ParseHints reads the annotations of a workload and, with a lower precedence, of its namespace. It returns all
// mistakes at once, and the hints without them.
func ParseHints(workload, namespace map[string]string, byDefault Spread) (Hints, error) {
	h := Hints{Spread: byDefault}
	var problems []error
	read := func(key string, parse func(string) error) {
		value, ok := workload[key]
		if !ok {
			value = namespace[key]
		}
		if value == "" {
			return
		}
		if err := parse(value); err != nil {
			problems = append(problems, fmt.Errorf("annotation %s: %q: %w", key, value, err))
		}
	}
	selector := func(to *labels.Selector) func(string) error {
		return func(value string) error {
			s, err := labels.Parse(value)
			if err == nil {
				*to = s
			}
			return err
		}
	}
	read(api.AnnotationClusterSelector, selector(&h.ClusterSelector))
	read(api.AnnotationAffinity, selector(&h.Affinity))
	read(api.AnnotationAntiAffinity, selector(&h.AntiAffinity))
	read(api.AnnotationSpread, func(value string) error {
		if !slices.Contains([]Spread{Divide, Duplicate, Single}, Spread(value)) {
			return errors.New("must be Divide, Duplicate or Single")
		}
		h.Spread = Spread(value)
		return nil
	})
	read(api.AnnotationMaxClusters, func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return errors.New("must be a number greater than zero")
		}
		h.MaxClusters = n
		return nil
	})
	read(api.AnnotationFailover, h.parseFailover)
	read(api.AnnotationWeights, func(value string) (err error) {
		h.Weights, err = parseWeights(value)
		return err
	})
	return h, errors.Join(problems...)
}

func (h *Hints) parseFailover(value string) error {
	if f := api.Failover(value); f == api.FailoverAutomatic || f == api.FailoverNever {
		h.Failover = f
		return nil
	}
	after, err := time.ParseDuration(value)
	if err != nil || after <= 0 {
		return errors.New("must be Automatic, Never or a time such as 5m")
	}
	h.Failover = api.FailoverAutomatic
	h.FailoverAfter = after
	return nil
}

// maxWeight keeps sums of weights exact.
const maxWeight = 1_000_000

func parseWeights(value string) (map[string]int64, error) {
	all := map[string]int64{}
	for _, part := range strings.Split(value, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || n < 0 || n > maxWeight {
			return nil, fmt.Errorf("must be a list such as c1=2,c2=1, with weights from 0 to %d", maxWeight)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%s is listed twice", name)
		}
		all[name] = n
	}
	return all, nil
}

// DefaultSpread returns how objects of a resource are spread without an annotation, or false if their kind is not in
// the table. Workloads with data in their cluster, such as StatefulSets with volumeClaimTemplates, run on one cluster.
// What follows workloads is on each cluster if a user chooses where it is.
func DefaultSpread(gr schema.GroupResource, data bool) (Spread, bool) {
	k, ok := kinds.OfResource(gr)
	switch {
	case !ok:
		return "", false
	case data, k.Data == kinds.AlwaysData:
		return Single, true
	case k.Spread == kinds.Follow:
		return Duplicate, true
	}
	return Spread(k.Spread), true
}

// NotSetError means that the kind of an object is not in the table, and that no annotation has its spread.
type NotSetError struct{ Resource schema.GroupResource }

func (e *NotSetError) Error() string {
	return fmt.Sprintf("kcpctl does not know %s: annotate the object or its namespace with %s=%s (on one cluster) "+
		"or %s=%s (on each cluster)",
		e.Resource, api.AnnotationSpread, Single, api.AnnotationSpread, Duplicate)
}

// CheckSpread returns an error if objects of a resource cannot be spread as the hints say, or if nothing says how they
// are spread.
func CheckSpread(h Hints, gr schema.GroupResource, data bool) error {
	k, known := kinds.OfResource(gr)
	switch {
	case h.Spread == "":
		return &NotSetError{gr}
	case h.Spread == Divide && (data || !known || k.Spread != kinds.Divide && !k.Divisible):
		return fmt.Errorf("annotation %s: %q: objects of this kind cannot be divided", api.AnnotationSpread, h.Spread)
	}
	return nil
}
