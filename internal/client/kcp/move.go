package kcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// End is one of the two shards of a move.
type End struct {
	// Mover is a member of system:masters and system:kcp:external-logical-cluster-admin. kcp serves its requests to a
	// logical cluster that is being moved.
	Mover *Client
	// Client is a member of system:kcp:admin and system:kcp:external-logical-cluster-admin: requests of clients are
	// refused when the requests of this one are.
	Client *Client
}

// Move moves a logical cluster to another shard. kcp v0.32 refuses the requests to it meanwhile, but only in the
// process that leads the replicas of a shard, and only until it ends. So kcpctl closes the logical cluster in etcd
// before kcp begins to copy it, and opens the copy when the original is deleted.
//
// An interrupted move continues with another Run. Of both shards only one replica may run: the others do not know of a
// move (kcp: pkg/reconciler/migration/logicalclustermigration).
type Move struct {
	// Root is the root shard.
	Root *Client
	// Cluster is the name of the logical cluster, and Shard the one that it moves to, unless kcp copies it to another
	// one already. An empty Shard is only for that.
	Cluster, Shard string
	// End returns a shard by its name.
	End func(shard string) (End, error)
	// Accept opens the logical cluster also where it is not known whether it is complete: an operator has looked.
	Accept bool
	// Report is called with the reason why the move waits.
	Report func(reason string)

	migrations dynamic.ResourceInterface
	// original is the content before it is copied. It is nil if an earlier run has let kcp begin to copy.
	original content
	// recalled is when the shard that the logical cluster moves to was made to notice the move again.
	recalled time.Time
	// told is when a shard was last told of a change that it missed, and patience how long it has before it is told
	// again.
	told     time.Time
	patience time.Duration
}

// holding is the destination of a migration that must not copy yet. No shard has this name, because it is not a valid
// one.
const holding = "kcpctl:holding"

// The phases of a LogicalClusterMigration.
const (
	phasePreparing = "Preparing"
	phaseMigrating = "Migrating"
	phaseFinalize  = "DestinationFinalize"
	phaseCompleted = "Completed"
	phaseFailed    = "Failed"
)

// minPatience is how long a shard has before it is told something again. It doubles each time, so that a slow copy is
// not interrupted forever.
const minPatience = 5 * time.Second

// The annotations of a migration, besides its content.
const (
	// openedAnnotation is when its logical cluster was opened again.
	openedAnnotation = "kcpctl.dev/opened"
	// destinationAnnotation is the shard that it is to be copied to, as long as it must not be copied.
	destinationAnnotation = "kcpctl.dev/destination"
)

// errFatal ends a move. Other errors are reported, and tried again.
type errFatal struct{ error }

func (e errFatal) Unwrap() error { return e.error }

// Run moves the logical cluster, and waits until it has moved. BindMigration must be called before.
func (m *Move) Run(ctx context.Context) error {
	m.migrations, m.patience = m.Root.workspace(RootWorkspace).Resource(migrationResource), minPatience
	var fatal errFatal
	err := poll.UntilWorks(ctx, pollInterval, m.Report, func() error {
		err := m.step(ctx)
		if errors.As(err, &fatal) {
			return nil
		}
		return err
	})
	return errors.Join(err, fatal.error)
}

// step acts on the phase of the migration, and returns nil when the move has ended.
func (m *Move) step(ctx context.Context) error {
	name := migrationOf(m.Cluster)
	now, err := m.migrations.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		now, err = m.migrations.Create(ctx, m.migration(name), metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	text := func(path ...string) string { s, _, _ := unstructured.NestedString(now.Object, path...); return s }
	phase, from, to := text("status", "phase"), text("status", "originShard"), text("spec", "destinationShard")
	switch {
	case phase == phaseMigrating && to == holding:
		return m.begin(ctx, now, from)
	case phase == phaseMigrating && isTrue(now, originCleaned):
		err = m.finish(ctx, now, to)
		if err == nil {
			err = m.setPhase(ctx, now, phaseFinalize)
		}
	case phase == phaseMigrating:
		err = m.renew(ctx, now)
	case phase == phaseFinalize:
		if err = m.finish(ctx, now, to); err == nil {
			err = m.wake(ctx, name)
		}
	case phase == phaseCompleted:
		if err = m.finish(ctx, now, to); err == nil {
			return m.end(ctx, name)
		}
	case phase == phaseFailed:
		return m.abandon(ctx, now, from, to)
	}
	if err != nil {
		return err
	}
	return errors.New(withReason(cmp.Or(phase, "pending"), now))
}

func (m *Move) migration(name string) *unstructured.Unstructured {
	meta := map[string]any{"name": name}
	if m.Shard != "" {
		meta["annotations"] = map[string]any{destinationAnnotation: m.Shard}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration",
		"metadata": meta,
		"spec":     map[string]any{"logicalCluster": m.Cluster, "destinationShard": holding},
	}}
}

// begin closes the logical cluster, and then lets the other shard copy it.
func (m *Move) begin(ctx context.Context, now *unstructured.Unstructured, from string) error {
	if m.Shard == "" {
		return errFatal{errors.New("it is being moved, but its location selector matches no shard that " +
			"accepts workspaces")}
	}
	source, err := m.End(from)
	if err != nil {
		return err
	}
	target, err := m.End(m.Shard)
	if err != nil {
		return err
	}
	if err := source.Mover.closeCluster(ctx, m.Cluster, m.Shard); err != nil {
		return fmt.Errorf("close it: %w", err)
	}
	if err := errors.Join(m.closed(ctx, from, source), m.closed(ctx, m.Shard, target)); err != nil {
		return err
	}
	m.original, err = source.Mover.dump(ctx, m.Cluster)
	if errors.Is(err, errForgotten) {
		return errors.Join(err, m.setPhase(ctx, now, phasePreparing))
	}
	if err != nil {
		return err
	}
	err = m.merge(ctx, now.GetName(), map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{contentAnnotation: m.original.note()}},
		"spec":     map[string]any{"destinationShard": m.Shard},
	})
	if err != nil {
		return err
	}
	return fmt.Errorf("copying %d entries", len(m.original))
}

// closed returns an error unless a shard refuses requests to the logical cluster.
func (m *Move) closed(ctx context.Context, shard string, end End) error {
	closed, err := end.Client.isClosed(ctx, m.Cluster)
	if err != nil {
		return fmt.Errorf("shard %s: %w", shard, err)
	}
	if !closed {
		return fmt.Errorf("shard %s still serves it", shard)
	}
	return nil
}

// renew makes a source that has forgotten the move, because it was restarted, refuse requests and give its content
// again. The logical cluster is closed, so nothing has changed.
func (m *Move) renew(ctx context.Context, now *unstructured.Unstructured) error {
	forgotten := slices.ContainsFunc(untrue(now), func(c condition) bool {
		return c.reason == "CopyFailed" && strings.Contains(c.message, "not found")
	})
	if !forgotten || !m.again() {
		return nil
	}
	return m.setPhase(ctx, now, phasePreparing)
}

// wake makes the shard that the logical cluster moves to notice that it is open. Otherwise the shard tries again
// after a while that doubles with each attempt.
func (m *Move) wake(ctx context.Context, name string) error {
	if !m.again() {
		return nil
	}
	note := map[string]any{openedAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
	return m.merge(ctx, name, map[string]any{"metadata": map[string]any{"annotations": note}})
}

// again reports whether a shard was not told something of late.
func (m *Move) again() bool {
	if time.Since(m.told) < m.patience {
		return false
	}
	if !m.told.IsZero() {
		m.patience *= 2
	}
	m.told = time.Now()
	return true
}

// end deletes the migration.
func (m *Move) end(ctx context.Context, name string) error {
	if err := m.migrations.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete migration %s: %w", name, err)
	}
	return nil
}

// setPhase sets the phase of a migration, unless it has changed in the meantime.
func (m *Move) setPhase(ctx context.Context, now *unstructured.Unstructured, phase string) error {
	return m.merge(ctx, now.GetName(), map[string]any{
		"metadata": map[string]any{"resourceVersion": now.GetResourceVersion()},
		"status":   map[string]any{"phase": phase},
	}, "status")
}

func (m *Move) merge(ctx context.Context, name string, patch map[string]any, subresources ...string) error {
	_, err := mergepatch.Send(ctx, m.migrations, object.FieldManager, name, "", patch, subresources...)
	return err
}
