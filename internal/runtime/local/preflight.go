package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Facts returns the facts about this machine for checks. They download nothing.
func (r *Runtime) Facts() check.Facts { return check.Facts{Machine: r} }

// StateFolder returns an error if files cannot be created in the state directory, or in the directory in which it will
// be created.
func (r *Runtime) StateFolder(context.Context) error {
	for dir := r.layout.Dir; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if err == nil {
			err = writable(dir)
		}
		if err != nil {
			return explain(fmt.Errorf("write to %s: %w", dir, err))
		}
		return nil
	}
}

// References returns an error if objects mount Secrets or ConfigMaps that are not part of the setup.
func (r *Runtime) References(_ context.Context, objects []render.Object) error {
	find := r.orUser(rendered(objects))
	return r.eachWorkload(objects, func(_ topology.ID, w *workload) error {
		_, err := w.files(find)
		return err
	})
}

// Programs returns an error if a program has another version than the objects require. Missing programs are downloaded
// when they are needed: whether that works is not known, which is the error.
func (r *Runtime) Programs(ctx context.Context, objects []render.Object) error {
	checked := map[string]bool{}
	var missing []string
	err := r.eachWorkload(objects, func(id topology.ID, w *workload) error {
		release := r.release(id)
		if checked[release+w.program] {
			return nil
		}
		checked[release+w.program] = true
		n, errRecord := r.needOf(id, w)
		found, _, err := r.options.Binaries.onMachine(ctx, n)
		if err = errors.Join(err, errRecord); err == nil && found == nil && n.build == "" {
			missing = append(missing, w.program+" "+release)
		}
		return err
	})
	if len(missing) == 0 {
		return err
	}
	return errors.Join(err, fmt.Errorf("%w: will be downloaded: %s", check.ErrUnknown, strings.Join(missing, ", ")))
}

// FreePorts returns an error if ports of components that are not running yet are taken.
func (r *Runtime) FreePorts(ctx context.Context, objects []render.Object) error {
	return r.eachWorkload(objects, func(id topology.ID, w *workload) error { return r.checkPorts(ctx, id, w) })
}

// HostAddress returns an error if kcp would not find an address of this machine. kcp does not start without one that
// other machines could reach, whatever address it listens on.
func (r *Runtime) HostAddress(_ context.Context, objects []render.Object) error {
	return r.eachWorkload(objects, func(topology.ID, *workload) error {
		if err := r.hostAddress(); err != nil {
			return clierr.New(clierr.Failed,
				"connect this machine to a network, or add a default route, which need not lead anywhere",
				"kcp does not start on a machine without a default route: %w", err)
		}
		return nil
	})
}

// hostAddress finds the address with the same function as kcp.
func hostAddress() error {
	_, err := utilnet.ResolveBindAddress(net.IPv4(127, 0, 0, 1))
	return err
}

// eachWorkload calls do for all Deployments, and returns all errors as one.
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

// checkPorts returns an error if ports of a component that is not running yet are taken by a process of another setup
// or program.
func (r *Runtime) checkPorts(ctx context.Context, id topology.ID, w *workload) error {
	live, rec, err := r.layout.locate(w)
	if err != nil || len(live) > 0 {
		return err
	}
	if rec != nil {
		r.layout.ports.WaitFree(ctx, id)
	}
	taken := r.layout.ports.Taken(id)
	if len(taken) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "stop the process that has the port, or choose other ports with --base-port", "%s",
		strings.Join(taken, "\n"))
}
