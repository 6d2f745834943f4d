package kcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// The conditions of a LogicalClusterMigration.
const (
	// dataCopied is true when kcp has copied everything, and deletes the original.
	dataCopied = "DataCopied"
	// originCleaned is true when kcp has deleted the original.
	originCleaned = "OriginCleaned"
)

// recallTime is how long a restarted shard has to notice a move again.
const recallTime = 2 * time.Minute

// ClosedError ends a move that leaves a logical cluster closed on a shard, because it is not known whether it is
// complete there. Move.Accept opens it.
type ClosedError struct{ Shard, why string }

func (e ClosedError) Error() string {
	return fmt.Sprintf("%s, so it stays closed on shard %s", e.why, e.Shard)
}

func staysClosed(shard, format string, args ...any) error {
	return errFatal{ClosedError{shard, fmt.Sprintf(format, args...)}}
}

// finish compares the copy with the original, and opens it. A copy that may differ remains closed.
func (m *Move) finish(ctx context.Context, now *unstructured.Unstructured, to string) error {
	target, err := m.End(to)
	if err != nil {
		return err
	}
	l, err := target.Mover.Cluster(ctx, m.Cluster)
	if err != nil {
		return err
	}
	if l.Phase == phaseClosed && l.Moving && !m.Accept {
		if err := m.compare(ctx, now, to, target); err != nil {
			return err
		}
	}
	if err := target.Mover.openCluster(ctx, m.Cluster); err != nil {
		return fmt.Errorf("open it: %w", err)
	}
	return nil
}

// compare returns an error unless the copy on the shard to is the same as the original.
func (m *Move) compare(ctx context.Context, now *unstructured.Unstructured, to string, target End) error {
	original := m.original
	if original == nil {
		original = notedContent(now)
	}
	if original == nil {
		return staysClosed(to, "it is not known which content it had before it was copied")
	}
	copied, err := target.Mover.dump(ctx, m.Cluster)
	if errors.Is(err, errForgotten) {
		return m.recall(ctx, now, to)
	}
	if err != nil {
		return err
	}
	if lost := original.missing(copied); len(lost) > 0 {
		return staysClosed(to, "%d of %d entries are not the same as before it was copied: %s",
			len(lost), len(original), gather.Few(lost, gather.Listed, ", "))
	}
	return nil
}

// recall makes a restarted shard notice that the logical cluster is being moved to it, so that it gives the content of
// the copy. As in the phase of the copy, the shard requests the original from the other shard, where it is deleted, and
// overwrites nothing (kcp: pkg/reconciler/migration/logicalclustermigration/reconciler.go).
func (m *Move) recall(ctx context.Context, now *unstructured.Unstructured, to string) error {
	switch {
	case m.recalled.IsZero():
		m.recalled = time.Now()
	case time.Since(m.recalled) > recallTime:
		return staysClosed(to, "the shard was restarted and does not give the content of its copy")
	}
	phase, _, _ := unstructured.NestedString(now.Object, "status", "phase")
	if phase != phaseMigrating {
		if err := m.setPhase(ctx, now, phaseMigrating); err != nil {
			return err
		}
	}
	return fmt.Errorf("shard %s: %w", to, errForgotten)
}

// abandon ends a migration that has failed. kcp v0.32 and later do that only before they copy anything, if another
// migration moves the logical cluster. So the original is complete, and is opened unless the other shard serves the
// copy. If kcp may have begun to delete it, it remains closed.
func (m *Move) abandon(ctx context.Context, now *unstructured.Unstructured, from, to string) error {
	failed := errors.New(withReason("migration failed", now))
	if from == "" {
		return errFatal{errors.Join(failed, m.end(ctx, now.GetName()))}
	}
	source, err := m.End(from)
	if err != nil {
		return err
	}
	l, err := source.Mover.Cluster(ctx, m.Cluster)
	if err != nil {
		return err
	}
	if l.Moving && !m.Accept {
		if isTrue(now, dataCopied) {
			return staysClosed(from, "%s, and a part of it may have been deleted", failed)
		}
		if to != holding {
			target, err := m.End(to)
			if err == nil {
				err = m.closed(ctx, to, target)
			}
			if err != nil {
				return errors.Join(failed, err)
			}
		}
	}
	if l.Moving {
		if err := source.Mover.openCluster(ctx, m.Cluster); err != nil {
			return fmt.Errorf("open it: %w", err)
		}
		failed = fmt.Errorf("%w; it is open again on shard %s", failed, from)
	}
	return errFatal{errors.Join(failed, m.end(ctx, now.GetName()))}
}
