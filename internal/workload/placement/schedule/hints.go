package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

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
