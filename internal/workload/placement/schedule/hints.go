package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

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

// parseFailover reads Automatic, Never or a time.
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

// parseWeights reads weights such as c1=2,c2=1.
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
