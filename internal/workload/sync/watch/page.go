package watch

import (
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// item is an object of a list as the set keeps it. client-go hands it from the pages of a list to source.Replace.
type item struct {
	key  Key
	held held
}

// GetObjectKind implements runtime.Object.
func (i *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Items are not changed.
func (i *item) DeepCopyObject() runtime.Object { return i }

// page returns a page of a list whose objects are as the set keeps them.
func (s *Set) page(list *unstructured.UnstructuredList) runtime.Object {
	out := &metainternal.List{
		ListMeta: metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue()},
		Items:    make([]runtime.Object, len(list.Items)),
	}
	for i := range list.Items {
		u := &unstructured.Unstructured{Object: list.Items[i].Object} // a pointer into the list would keep all of it
		list.Items[i].Object = nil
		out.Items[i] = &item{KeyOf(u), s.hold(u)}
	}
	return out
}
