package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// MoverRuntime is the part of a runtime that moves of logical clusters use.
type MoverRuntime interface {
	kcp.Dialer
	run.Scaler
	State(ctx context.Context, c *topology.Component) (ready.State, error)
}

// MoveOptions are the options of runs that move workspaces.
type MoveOptions struct {
	// Concurrency is how many workspaces move at the same time; 0 means DefaultConcurrency.
	Concurrency int
	// AllowUnverifiedCopy are the paths of the workspaces that are opened although it is not known whether they are
	// complete.
	AllowUnverifiedCopy []string
}

// DefaultConcurrency is how many workspaces move at the same time. Moves do not depend on each other: each has its own
// migration and closes only its own workspace. But as long as a workspace moves, it is closed, and kcpctl and both
// shards have all of its content in memory.
const DefaultConcurrency = 8

// mover moves logical clusters between the shards of a kcp.
type mover struct {
	*reporter
	MoveOptions
	topology *topology.Topology
	runtime  MoverRuntime
	state    *pki.State
	now      func() time.Time
	root     *kcp.Client
	// shards are the registered ones, and leaving the names of the shards that nothing moves to.
	shards  []kcp.Shard
	leaving []string
	// ends are the shards of the setup, by name.
	ends map[string]*moveEnd
}

// newMover returns a mover for a kcp. It reads the registered shards from the root shard.
func newMover(ctx context.Context, m mover) (*mover, error) {
	var err error
	if m.root, err = m.connect(m.topology.Root()); err != nil {
		return nil, err
	}
	if m.shards, err = m.root.Shards(ctx); err != nil {
		return nil, clierr.New(clierr.NotReady, "run kcpctl up first", "the root shard does not answer: %w", err)
	}
	m.ends = map[string]*moveEnd{}
	for _, c := range m.topology.Shards() {
		m.ends[c.ShardName()] = &moveEnd{shard: c}
	}
	return &m, nil
}

// WorkspaceMove is a workspace that moves to another shard.
type WorkspaceMove struct {
	// Workspace is its path, and Cluster the name of its logical cluster.
	Workspace string `json:"workspace"`
	Cluster   string `json:"cluster"`
	// From and To are names of shards. From is empty if no shard has it, and To if it is not known where it moves to.
	From string `json:"from"`
	To   string `json:"to"`
}

func (w WorkspaceMove) String() string {
	if w.To == "" {
		return w.Workspace
	}
	return fmt.Sprintf("%s to shard %s", w.Workspace, w.To)
}

// moveReport is called with the reason why a move waits. The last call has another status than Running.
type moveReport func(w WorkspaceMove, s run.Status, message string)

// asOneStep reports moves as the progress of one step.
func (m *mover) asOneStep(step string) moveReport {
	all := run.NewReasons(func(message string) {
		if message != "" {
			m.Step(step, run.Running, message)
		}
	})
	return func(w WorkspaceMove, s run.Status, message string) {
		if s != run.Running {
			message = ""
		}
		all.Set(w.String(), message)
	}
}

// errNotBegun is the error of a move that did not begin, because another one failed or the run has ended.
var errNotBegun = errors.New("not begun")

// moveAll moves logical clusters, several at a time. With stop, no move begins after one has failed. The errors are in
// the order of the moves.
func (m *mover) moveAll(ctx context.Context, all []WorkspaceMove, report moveReport, stop bool) []error {
	limit := m.Concurrency
	if limit == 0 {
		limit = DefaultConcurrency
	}
	var failed atomic.Bool
	return parallel.Map(limit, all, func(w WorkspaceMove) error {
		if ctx.Err() != nil || stop && failed.Load() {
			return errNotBegun
		}
		err := m.move(ctx, w, report)
		if err != nil {
			failed.Store(true)
		}
		return err
	})
}

// joinMoves joins the errors of moves. The cause of ctx stands for moves that did not begin because it has ended.
func joinMoves(ctx context.Context, errs []error) error {
	begun := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, errNotBegun) })
	if err := parallel.Join(begun); err != nil || len(begun) == len(errs) {
		return err
	}
	return context.Cause(ctx)
}

// move moves a logical cluster to another shard, or continues to the shard that it moves to.
func (m *mover) move(ctx context.Context, w WorkspaceMove, report moveReport) error {
	say := func(reason string) { report(w, run.Running, reason) }
	say("beginning")
	work, cancel := afterwards(ctx)
	defer cancel()
	move := &kcp.Move{
		Root: m.root, Cluster: w.Cluster, Shard: w.To, Report: say, Accept: m.accepts(w),
		End: func(shard string) (kcp.End, error) { return m.end(work, shard, say) },
	}
	err := m.run(work, w, move)
	switch {
	case errors.Is(err, context.Canceled):
		report(w, run.Interrupted, "")
	case err != nil:
		report(w, run.Failed, run.FirstLine(err))
	default:
		report(w, run.Done, "moved")
		return nil
	}
	return m.cannotMove(w, err)
}

// run moves a logical cluster once both shards have a single replica.
func (m *mover) run(ctx context.Context, w WorkspaceMove, move *kcp.Move) error {
	for _, shard := range []string{w.From, w.To} {
		if shard == "" {
			continue
		}
		if _, err := move.End(shard); err != nil {
			return err
		}
	}
	if w.From != "" && w.To != "" && w.From != w.To {
		if err := m.leave(ctx, w, move); err != nil {
			return err
		}
	}
	return move.Run(ctx)
}

// leave notes which process the logical cluster leaves, and refuses a move back to one that it has left.
func (m *mover) leave(ctx context.Context, w WorkspaceMove, move *kcp.Move) error {
	from, err := move.End(w.From)
	if err != nil {
		return err
	}
	l, err := from.Mover.Cluster(ctx, w.Cluster)
	switch {
	case err != nil:
		return err
	case l.Migration != "": // an earlier run has noted it
		return nil
	case l.CannotServe(w.To, m.ends[w.To].started):
		return errors.New(hasLeft(w.To))
	}
	return from.Mover.Leave(ctx, w.Cluster, w.From, m.ends[w.From].started)
}

// hasLeft is why a logical cluster cannot move back to a shard.
func hasLeft(shard string) string {
	return fmt.Sprintf("it was on shard %[1]s since this shard started, which refuses its requests until it restarts: "+
		"run kcpctl restart %[2]s", shard, topology.ShardID(shard))
}

func (m *mover) accepts(w WorkspaceMove) bool {
	return slices.Contains(m.AllowUnverifiedCopy, w.Workspace) || slices.Contains(m.AllowUnverifiedCopy, w.Cluster)
}

func (m *mover) cannotMove(w WorkspaceMove, err error) error {
	hint := "fix the cause and run the command again: it continues"
	if closed := (kcp.ClosedError{}); errors.As(err, &closed) {
		hint = fmt.Sprintf("look at it (%s); then run the command again with %s, which opens it as it is",
			m.lookInto(closed.Shard, w.Cluster), risk.UnverifiedCopy.Of(w.Workspace))
	}
	return clierr.New(clierr.Failed, hint, "move %s: %w", w, err)
}

// lookInto is the command with which a user looks at a logical cluster that is closed. The URL of a shard on a cluster
// may lead to it only there.
func (m *mover) lookInto(shard, cluster string) string {
	forward := " --port-forward"
	if m.topology.Local() {
		forward = ""
	}
	return fmt.Sprintf("kcpctl kubeconfig --user NAME --group system:masters --target shard/%s --workspace %s%s "+
		"-- kubectl get configmaps -A", shard, cluster, forward)
}

// moveTime is how long a move goes on when the run is interrupted. Other runs do not take the lock within that time.
const moveTime = 4 * time.Second

// afterwards returns a context that ends some time after ctx.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if poll.Pause(out, moveTime) == nil {
			cancel(context.Cause(ctx))
		}
	})
	return out, func() { stop(); cancel(nil) }
}

// connect returns an administrator's client of a component.
func (m *mover) connect(c *topology.Component) (*kcp.Client, error) {
	return kcp.Connect(m.runtime, c, m.state, m.now())
}

// registered are the registered shards of the setup.
func (m *mover) registered() []*topology.Component {
	return slices.DeleteFunc(slices.Clone(m.topology.Shards()), func(c *topology.Component) bool {
		return !slices.ContainsFunc(m.shards, func(s kcp.Shard) bool { return s.Name == c.ShardName() })
	})
}

// located is a logical cluster on a shard.
type located struct {
	kcp.LogicalCluster
	shard string
	on    *kcp.Client
}

// locate returns the logical clusters of all registered shards, in the order of the shards. One that is being moved can
// be on two of them.
func (m *mover) locate(ctx context.Context) ([]located, error) {
	shards := m.registered()
	found := make([][]located, len(shards))
	err := parallel.Each(ctx, parallel.Indices(shards), func(ctx context.Context, i int) error {
		client, err := m.connect(shards[i])
		if err != nil {
			return err
		}
		clusters, err := client.LogicalClusters(ctx)
		if err != nil {
			return cannotListWorkspaces(shards[i].ID(), err)
		}
		for _, l := range clusters {
			found[i] = append(found[i], located{l, shards[i].ShardName(), client})
		}
		return nil
	})
	return slices.Concat(found...), err
}

// holders returns the shards of logical clusters by their names.
func holders(all []located) map[string][]string {
	out := map[string][]string{}
	for _, l := range all {
		out[l.Name] = append(out[l.Name], l.shard)
	}
	return out
}

// whereabouts continues a sentence with where a logical cluster is.
func whereabouts(all []located, cluster string) string {
	var on []string
	for _, l := range all {
		if l.Name == cluster {
			state := ""
			if l.Moving {
				state = ", closed"
			}
			on = append(on, "on shard "+l.shard+state)
		}
	}
	if len(on) == 0 {
		return "on no shard that answers"
	}
	return strings.Join(on, " and ")
}

// rerun ends the next step of a removal that stopped before it changed anything.
const rerun = ", then run the command again"

// workspaceIdentity returns the identity of the API of Workspaces.
func workspaceIdentity(ctx context.Context, root *kcp.Client) (string, error) {
	identity, err := root.WorkspaceIdentity(ctx)
	if err != nil {
		return "", clierr.New(clierr.NotReady, "see with kcpctl status that the root shard is ready"+rerun,
			"cannot list workspaces: %w", err)
	}
	return identity, nil
}

func cannotListWorkspaces(at topology.ID, err error) error {
	return clierr.New(clierr.NotReady, "see with kcpctl status that "+string(at)+" is ready"+rerun,
		"cannot list the workspaces on %s: %w", at, err)
}

// reporter is not part of what callers set.
type reporter = run.Reporter
