package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kcpctl/kcpctl/internal/check"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Facts returns this machine as checks see it. They download nothing.
func (r *Runtime) Facts() check.Facts { return check.Facts{Machine: r} }

// StateFolder returns why files cannot be written.
func (r *Runtime) StateFolder(context.Context) error { return r.writable() }

// References returns which files the objects refer to that do not exist.
func (r *Runtime) References(_ context.Context, objects []render.Object) error {
	find := rendered(objects)
	return r.eachWorkload(objects, func(_ topology.ID, w *workload) error {
		_, err := w.files(find)
		return err
	})
}

// Programs returns which programs are of another version than the objects want. Those that are missing are downloaded when
// they are needed.
func (r *Runtime) Programs(ctx context.Context, objects []render.Object) error {
	checked := map[string]bool{}
	return r.eachWorkload(objects, func(id topology.ID, w *workload) error {
		release := r.release(id)
		if checked[release+w.program] {
			return nil
		}
		checked[release+w.program] = true
		_, _, err := r.options.Binaries.find(ctx, release, w.program)
		return err
	})
}

// FreePorts returns which ports somebody else has.
func (r *Runtime) FreePorts(ctx context.Context, objects []render.Object) error {
	return r.eachWorkload(objects, func(id topology.ID, w *workload) error { return r.checkPorts(ctx, id, w) })
}

// HostAddress returns why kcp would find no address of this machine. It wants one that others could reach, whatever it
// listens on, and does not start without.
func (r *Runtime) HostAddress(_ context.Context, objects []render.Object) error {
	return r.eachWorkload(objects, func(topology.ID, *workload) error {
		if err := r.hostAddress(); err != nil {
			return clierr.New(clierr.Failed, "connect this machine to a network, or give it a default route: it need not lead anywhere",
				"kcp does not start on a machine without a default route: %w", err)
		}
		return nil
	})
}

// hostAddress looks for the address as kcp does: with the same function.
func hostAddress() error {
	_, err := utilnet.ResolveBindAddress(net.ParseIP(loopback))
	return err
}

// eachWorkload calls do for all Deployments, and returns all errors.
func (r *Runtime) eachWorkload(objects []render.Object, do func(topology.ID, *workload) error) error {
	var errs []error
	for _, o := range objects {
		if o.GetKind() != kindDeployment {
			continue
		}
		w, err := r.layout.workload(o.Unstructured)
		if err == nil {
			err = do(o.Component, w)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writable tells whether files can be made in the state directory, or in the folder in which it will be.
func (r *Runtime) writable() error {
	for dir := r.layout.Dir; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if err == nil {
			err = unix.Access(dir, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			return writeError(fmt.Errorf("write to %s: %w", dir, err))
		}
		return nil
	}
}

// checkPorts makes sure that the ports of a component that does not run yet are free, or are taken by what we replace.
func (r *Runtime) checkPorts(ctx context.Context, id topology.ID, w *workload) error {
	live, rec, err := r.layout.locate(w)
	if err != nil || len(live) > 0 {
		return err
	}
	if rec != nil {
		r.awaitPorts(ctx, id)
	}
	taken := r.taken(id)
	if len(taken) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "stop what has the port, or choose other ports with --base-port", "%s",
		strings.Join(taken, "\n"))
}

// awaitPorts gives the ports of a component that ran before a moment to become free: a process that was killed counts as
// dead while the kernel still ends its threads, and these hold its sockets.
func (r *Runtime) awaitPorts(ctx context.Context, id topology.ID) {
	over := time.After(killTime)
	for r.held(id) {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-time.After(pollInterval):
		}
	}
}

// held tells whether a port of a component is taken, but by no live process that is known.
func (r *Runtime) held(id topology.ID) bool {
	return slices.ContainsFunc(r.layout.ports.ofComponent(id), func(p namedPort) bool {
		if r.layout.ports.free(p.port) {
			return false
		}
		pid := portOwner(p.port)
		if pid == 0 {
			return true
		}
		_, err := identify(pid)
		return err != nil
	})
}

// taken names the ports of a component that somebody else listens on.
func (r *Runtime) taken(id topology.ID) []string {
	var out []string
	for _, p := range r.layout.ports.ofComponent(id) {
		if r.layout.ports.free(p.port) {
			continue
		}
		if who, ours := r.owner(p.port); !ours {
			out = append(out, fmt.Sprintf("port %d, meant for %s, is taken by %s", p.port, p.name, who))
		}
	}
	return out
}

// owner names who listens on a port, without its arguments, which may hold secrets, and tells whether it belongs to this
// setup.
func (r *Runtime) owner(port int32) (who string, ours bool) {
	unknown := fmt.Sprintf("another process (lsof -nP -iTCP:%d -sTCP:LISTEN may tell which)", port)
	pid := portOwner(port)
	all, err := processes()
	if err != nil || pid == 0 {
		return unknown, false
	}
	for _, p := range all {
		if p.pid == pid {
			return fmt.Sprintf("%s (pid %d)", p.argv[0], pid), p.runs(filepath.Base(p.argv[0]), r.layout.Dir)
		}
	}
	return unknown, false
}

// fetch gets all binaries that a plan starts, before anything is changed.
func (r *Runtime) fetch(ctx context.Context, p *plan.Plan) error {
	type need struct{ release, program string }
	var needs []need
	for _, it := range p.Items {
		if it.Kind != kindDeployment || it.Action != plan.Create && it.Action != plan.Change {
			continue
		}
		w, err := r.layout.workload(it.Want)
		if err != nil {
			return err
		}
		if n := (need{r.release(it.Component), w.program}); !slices.Contains(needs, n) {
			needs = append(needs, n)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range needs {
		g.Go(func() error {
			_, err := r.options.Binaries.get(ctx, n.release, n.program)
			return err
		})
	}
	return g.Wait()
}
