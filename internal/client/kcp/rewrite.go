package kcp

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// rewritePage is how many objects are listed, and then written, at a time.
const rewritePage = 500

// Rewrite makes the client's server, which is a shard, store all objects of a namespaced resource again, and returns
// their number. The objects do not change: an empty patch is written only if the object is stored with another key
// than new objects are (k8s: apiserver/pkg/storage/etcd3/store.go, GuaranteedUpdate). Their content is not read. report
// is called with the number of those that are done. It needs system:masters.
func (c *Client) Rewrite(ctx context.Context, r schema.GroupVersionResource, report func(done int)) (int, error) {
	all, err := c.metadata(wildcard)
	if err != nil {
		return 0, err
	}
	pages := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return all.Resource(r).List(ctx, o)
	}))
	pages.PageSize = rewritePage
	var done atomic.Int64
	var page []*metav1.PartialObjectMetadata
	write := func() error {
		err := parallel.Each(ctx, page, func(ctx context.Context, o *metav1.PartialObjectMetadata) error {
			done.Add(1)
			return c.touch(ctx, r, o)
		})
		page = nil
		report(int(done.Load()))
		return err
	}
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		item, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("list %s: the server answers with %T", r.Resource, o)
		}
		if page = append(page, item); len(page) < rewritePage {
			return nil
		}
		return write()
	})
	if err == nil {
		err = write()
	}
	return int(done.Load()), err
}

// touch writes an object without a change.
func (c *Client) touch(ctx context.Context, r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) error {
	cluster := o.GetAnnotations()[kcpapi.AnnotationCluster]
	at, err := c.metadata(cluster)
	if err == nil {
		_, err = at.Resource(r).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, []byte("{}"),
			metav1.PatchOptions{FieldManager: object.FieldManager})
	}
	deleted := apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if err == nil || deleted {
		return nil
	}
	return fmt.Errorf("write %s %s/%s of logical cluster %s again: %w",
		r.Resource, o.GetNamespace(), o.GetName(), cluster, err)
}

// metadata returns a client for the metadata of objects in a logical cluster.
func (c *Client) metadata(cluster string) (metadata.Interface, error) {
	cfg := metadata.ConfigFor(rest.CopyConfig(c.config))
	cfg.Host += "/clusters/" + cluster
	m, err := metadata.NewForConfigAndClient(cfg, c.http())
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return m, nil
}
