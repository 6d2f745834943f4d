package roots

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// moveInterval is the time for which moves are counted (see schedule.MovesPerMinute).
const moveInterval = time.Minute

// moves are the replicas of a root that moved in the interval from a time.
type moves struct {
	from time.Time
	n    int64
}

// movesOf reads the annotation of a root. It is read once, after the controller has started: a user can change it.
func movesOf(root *unstructured.Unstructured) moves {
	from, n, _ := strings.Cut(root.GetAnnotations()[api.AnnotationMoves], "=")
	at, err := time.Parse(time.RFC3339, from)
	count, err2 := strconv.ParseInt(n, 10, 64)
	if err != nil || err2 != nil {
		return moves{}
	}
	return moves{at, count}
}

// now returns the moves that count now: none of an earlier interval.
func (m moves) now(now time.Time) moves {
	if age := now.Sub(m.from); age < 0 || age >= moveInterval {
		return moves{}
	}
	return m
}

func (m moves) add(n int64, now time.Time) moves {
	if m = m.now(now); m.n == 0 {
		m.from = now
	}
	m.n += n
	return m
}

// String is the annotation of a root.
func (m moves) String() string {
	return m.from.UTC().Format(time.RFC3339) + "=" + strconv.FormatInt(m.n, 10)
}

// budget returns the replicas of a workload that may move now, for schedule.Assign: schedule.Moves at a time, and
// schedule.MovesPerMinute in each interval.
func (m moves) budget(replicas int64, now time.Time) int64 {
	left := schedule.MovesPerMinute(replicas) - m.now(now).n
	if left <= 0 {
		return -1
	}
	return min(left, schedule.Moves(replicas))
}

// until returns the time until more replicas may move, and at most an interval.
func (m moves) until(now time.Time) time.Duration {
	if m = m.now(now); m.n > 0 {
		return m.from.Add(moveInterval).Sub(now)
	}
	return moveInterval
}
