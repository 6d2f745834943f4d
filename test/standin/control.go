package standin

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// workers is the number of objects of a resource that change concurrently: a setup with a hundred shards has two
// hundred workloads.
const workers = 4

// controller does for the objects of a resource what a controller of a real cluster does.
type controller struct {
	cluster  *Cluster
	resource schema.GroupVersionResource
	// sync is called for every version of an object that belongs to a site.
	sync func(*Site, context.Context, schema.GroupVersionResource, *unstructured.Unstructured) error
	// gone is called with the name of a deleted object. It may be nil.
	gone func(s *Site, ctx context.Context, r schema.GroupVersionResource, name string) error

	objects cache.Store
	// queue has the names of changed objects. Only one worker has a name at a time.
	queue *workqueue.Typed[string]
}

// control starts the controllers, and waits until they have seen all objects. They run until ctx ends.
func (c *Cluster) control(ctx context.Context) error {
	all := dynamicinformer.NewDynamicSharedInformerFactory(c.Admin, 0)
	for _, ctl := range []*controller{
		{resource: Deployments, sync: (*Site).roll, gone: (*Site).collect},
		{resource: StatefulSets, sync: (*Site).roll, gone: (*Site).collect},
		{resource: Claims, sync: (*Site).release},
		{resource: namespaces, sync: (*Site).finalize},
	} {
		ctl.cluster, ctl.queue = c, workqueue.NewTyped[string]()
		if err := ctl.start(ctx, all.ForResource(ctl.resource).Informer()); err != nil {
			return err
		}
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	return ctx.Err()
}

func (ctl *controller) start(ctx context.Context, informer cache.SharedIndexInformer) error {
	ctl.objects = informer.GetStore()
	add := func(o any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			ctl.queue.Add(name)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add,
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, ctl.queue.ShutDown)
	for range workers {
		go ctl.work(ctx)
	}
	return nil
}

func (ctl *controller) work(ctx context.Context) {
	for {
		key, end := ctl.queue.Get()
		if end {
			return
		}
		ctl.handle(ctx, key)
		ctl.queue.Done(key)
	}
}

// handle calls sync or gone. Errors are problems of the site, except those that the next version of the object repairs.
func (ctl *controller) handle(ctx context.Context, key string) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key) // the key of an informer
	if ctl.resource == namespaces {
		namespace = name
	}
	s := ctl.cluster.At(namespace)
	if s == nil {
		return
	}
	var err error
	if o, exists, _ := ctl.objects.GetByKey(key); exists {
		err = ctl.sync(s, ctx, ctl.resource, o.(*unstructured.Unstructured))
	} else if ctl.gone != nil {
		err = ctl.gone(s, ctx, ctl.resource, name)
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		s.Problem("stand-in: %s %s: %v", ctl.resource.Resource, name, err)
	}
}
