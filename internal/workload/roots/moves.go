package roots

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
)

// moves are the replicas that moved to a leaf in the interval from a time.
type moves struct {
	from time.Time
	n    int64
}

// movesOf reads the annotation of a leaf. Moves of another interval than the current one do not count.
func movesOf(leaf *unstructured.Unstructured, now time.Time) moves {
	from, n, _ := strings.Cut(leaf.GetAnnotations()[api.AnnotationMoves], "=")
	at, err := time.Parse(time.RFC3339, from)
	count, err2 := strconv.ParseInt(n, 10, 64)
	if age := now.Sub(at); err != nil || err2 != nil || age < 0 || age >= moveInterval {
		return moves{}
	}
	return moves{at, count}
}

func (m moves) String() string {
	return m.from.UTC().Format(time.RFC3339) + "=" + strconv.FormatInt(m.n, 10)
}

// budget returns the replicas of a workload that may move now, for schedule.Assign: schedule.Moves at a time, and schedule.MovesPerMinute in
// each interval. The leaves have what moved, so that a controller that starts again keeps the limit.
func budget(replicas int64, leaves map[string]*unstructured.Unstructured, now time.Time) int64 {
	left := schedule.MovesPerMinute(replicas)
	for _, leaf := range leaves {
		left -= movesOf(leaf, now).n
	}
	if left <= 0 {
		return -1
	}
	return min(left, schedule.Moves(replicas))
}

// untilMoves returns the time until more replicas may move: until the first interval of a leaf ends, and at most an interval.
func untilMoves(leaves map[string]*unstructured.Unstructured, now time.Time) time.Duration {
	next := moveInterval
	for _, leaf := range leaves {
		if m := movesOf(leaf, now); m.n > 0 {
			next = min(next, m.from.Add(moveInterval).Sub(now))
		}
	}
	return next
}

// movesTo returns the annotation of a leaf after more replicas have moved to it. It is that of before if none have.
func movesTo(leaf *unstructured.Unstructured, moved int64, now time.Time) string {
	var m moves
	if leaf != nil {
		if moved == 0 {
			return leaf.GetAnnotations()[api.AnnotationMoves]
		}
		m = movesOf(leaf, now)
	}
	if moved == 0 {
		return ""
	}
	if m.n == 0 {
		m.from = now
	}
	m.n += moved
	return m.String()
}
