package watch

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// endpointSlices is the resource with the URLs of an APIExport's virtual workspaces, one for each shard with a binding
// (kcp: pkg/reconciler/apis/apiexportendpointsliceurls).
var endpointSlices = kcpapi.APIExportEndpointSlice.GVR()

// Follow calls changed with the URLs of an APIExportEndpointSlice, now and whenever they change, until the context
// ends. workspace is the URL of the slice's workspace. See FollowObject.
func Follow(ctx context.Context, o Options, workspace, name string, changed func(urls []string)) error {
	var last []string
	return FollowObject(ctx, o, workspace, endpointSlices, name, func(slice Object) {
		if urls := endpoints(slice.Unstructured); last == nil || !slices.Equal(urls, last) {
			last = urls
			changed(urls)
		}
	})
}

// FollowObject calls changed with a cluster-scoped object, now and whenever it changes, until the context ends. It is
// not called while the object does not exist or cannot be read: what was known last is assumed. server is the URL of
// its API server or workspace.
func FollowObject(ctx context.Context, o Options, server string, r schema.GroupVersionResource, name string,
	changed func(Object)) error {
	notify := poll.NewSignal()
	o.Path = ""
	o.LabelSelector = ""
	o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	o.Changed = func(schema.GroupVersionResource, Key) { notify.Send() }
	set, err := New(ctx, o)
	if err != nil {
		return err
	}
	defer set.Stop()
	if err := set.Update([]string{server}, []schema.GroupVersionResource{r}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-notify:
		}
		if all := set.List(r); len(all) == 1 {
			changed(all[0])
		}
	}
}

func endpoints(slice *unstructured.Unstructured) []string {
	all, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
	out := []string{}
	for _, e := range all {
		if m, ok := e.(map[string]any); ok {
			if url, ok := m["url"].(string); ok {
				out = append(out, url)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
