package kube

import (
	"context"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// witnessPart is the part of the name of the ConfigMap in which a cluster notes the serial of the record. A restore of
// the Secrets of a namespace does not change it. A restore of a whole namespace does not change the ConfigMaps of other
// clusters.
const witnessPart = "serial"

// The entries of the ConfigMap.
const (
	witnessSerial       = "serial"
	witnessInstallation = "installation"
)

// witnesses read and write these ConfigMaps.
type witnesses struct {
	topology *topology.Topology
	clusters *clusters
}

// ask adds to a record what the clusters have noted.
func (w *witnesses) ask(ctx context.Context, rec *record.Record) error {
	var mu sync.Mutex
	return w.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		serial, err := w.read(ctx, cl)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		rec.Witness(serial)
		return nil
	})
}

// read returns the serial that a cluster has noted, or zero.
func (w *witnesses) read(ctx context.Context, cl *cluster.Client) (int64, error) {
	text, err := w.noted(ctx, cl, witnessSerial)
	serial, _ := strconv.ParseInt(text, 10, 64) // whatever else is there is as good as nothing
	return serial, err
}

// installation returns the installation whose records a cluster has noted, or "".
func (w *witnesses) installation(ctx context.Context, cl *cluster.Client) (string, error) {
	return w.noted(ctx, cl, witnessInstallation)
}

// noted returns an entry of the ConfigMap of a cluster, or "".
func (w *witnesses) noted(ctx context.Context, cl *cluster.Client, entry string) (string, error) {
	o, err := cl.Get(ctx, kind.ConfigMap, w.topology.Object(witnessPart))
	if o == nil || err != nil {
		return "", err
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", entry)
	return text, nil
}

// note lets all clusters note the serial of a record, after it was written: if a run ends in between, the record is
// newer. A smaller serial than the noted one is not written.
func (w *witnesses) note(ctx context.Context, rec *record.Record) error {
	if rec.Empty() || rec.Serial == 0 {
		return nil
	}
	return w.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		noted, err := w.read(ctx, cl)
		if err != nil || noted >= rec.Serial {
			return err
		}
		o := &unstructured.Unstructured{Object: map[string]any{
			"data": map[string]any{witnessInstallation: rec.Installation,
				witnessSerial: strconv.FormatInt(rec.Serial, 10)},
		}}
		o.SetGroupVersionKind(kind.ConfigMap.GroupVersionKind)
		o.SetName(w.topology.Object(witnessPart))
		o.SetNamespace(cl.Namespace)
		o.SetLabels(map[string]string{topology.LabelSetup: w.topology.Name,
			"app.kubernetes.io/managed-by": topology.ManagedBy})
		cl.AddTo(o)
		_, err = cl.Apply(ctx, o, object.ApplyOptions{Force: true})
		if apierrors.IsNotFound(err) {
			return nil // the namespace does not exist: nothing was applied there yet
		}
		return cl.Explain(err, "write ConfigMap/%s/%s", cl.Namespace, o.GetName())
	})
}
