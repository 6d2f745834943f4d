package watch

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// own is a write of this process that a source has not shown yet. The resourceVersions of a source can be compared, as
// client-go's MutationCache does. It ends when the watch shows the object, or its deletion, in that version or a later
// one, and with a list that began after the write: that one is right whatever its version, such as when a backup of the
// API server was restored.
type own struct {
	// version is the resourceVersion of the answer. Zero: the object was only deleted.
	version uint64
	// deleted is the UID of an object that was deleted. Until it is gone, it is shown as being deleted.
	deleted types.UID
	// number is the number of the write in its source.
	number uint64
}

// versionOf returns a resourceVersion as a number, or zero if it is not one.
func versionOf(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64) // zero with an error
	return n
}

// wrote makes a source show an object as the answer to a write has it.
func (s *source) wrote(u *unstructured.Unstructured) {
	k, version := KeyOf(u), versionOf(u.GetResourceVersion())
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.own[k]
	if version <= max(s.line.shown(k), last.version) {
		return // the watch has shown it, and maybe what has become of it
	}
	if last.deleted == u.GetUID() {
		s.ending(u)
	}
	s.writes++
	s.own[k] = own{version, last.deleted, s.writes}
	s.put(k, s.set.hold(u))
}

// deleted makes a source show an object as one that is being deleted, until it is gone. Where something runs, that is
// not the same as an object that is gone.
func (s *source) deleted(k Key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.objects.get(k)
	if !h.exists() {
		return
	}
	u := s.set.table.unpack(h.packed)
	if u.GetUID() != uid {
		return
	}
	s.writes++
	s.own[k] = own{s.own[k].version, uid, s.writes}
	s.put(k, s.set.hold(s.ending(u)))
}

func (s *source) ending(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(s.set.o.Now())
		u.SetDeletionTimestamp(&now)
	}
	return u
}

// shows returns an object that the watch shows as the source shows it. It returns false if a later version was written.
// The source is locked.
func (s *source) shows(k Key, u *unstructured.Unstructured, h held) (held, bool) {
	own, waits := s.own[k]
	switch {
	case !waits:
	case versionOf(u.GetResourceVersion()) < own.version:
		return h, false
	case own.deleted == u.GetUID() && u.GetDeletionTimestamp() == nil:
		return s.set.hold(s.ending(u)), true
	default:
		delete(s.own, k)
	}
	return h, true
}

// showsOwn reports whether the watch brings what this process has written and the source already shows, so that it need
// not be decoded. Then the write ends.
func (s *source) showsOwn(k Key, o *late) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, waits := s.own[k]
	if !waits || o.gone || own.deleted != "" || own.version != versionOf(o.ResourceVersion) {
		return false
	}
	delete(s.own, k)
	s.line.done(k, o)
	return true
}

// merge adds to a list the objects that were written after it began. It returns the keys of the other objects that were
// written: the list shows them. The source is locked.
func (s *source) merge(next store, version uint64) (ended []Key) {
	for k, own := range s.own {
		if own.number <= s.began || own.version != 0 && own.version <= version {
			delete(s.own, k)
			ended = append(ended, k)
			continue
		}
		next.set(k, s.objects.get(k))
	}
	s.line.empty(version)
	return ended
}

// put stores an object, or removes it. The source is locked.
func (s *source) put(k Key, h held) {
	if h.exists() {
		s.objects.set(k, h)
	} else {
		s.objects.delete(k)
	}
}

// namespaceable is a client for a resource whose writes its source shows before the watch does.
type namespaceable struct {
	writer
	client dynamic.NamespaceableResourceInterface
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (n namespaceable) Namespace(name string) dynamic.ResourceInterface {
	w := n.writer
	w.ResourceInterface = n.client.Namespace(name)
	w.namespace = name
	return w
}

// writer is such a client in one namespace.
type writer struct {
	dynamic.ResourceInterface
	source             *source
	selector           labels.Selector
	cluster, namespace string
}

// wrote hands the answer to a write to the source, and returns it.
func (w writer) wrote(u *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if err == nil && KeyOf(u).Cluster == w.cluster && w.selector.Matches(labels.Set(u.GetLabels())) {
		w.source.wrote(u.DeepCopy())
	}
	return u, err
}

func (w writer) Create(ctx context.Context, u *unstructured.Unstructured, o metav1.CreateOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return w.wrote(w.ResourceInterface.Create(ctx, u, o, subresources...))
}

func (w writer) Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return w.wrote(w.ResourceInterface.Patch(ctx, name, t, data, o, subresources...))
}

func (w writer) Apply(ctx context.Context, name string, u *unstructured.Unstructured, o metav1.ApplyOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return w.wrote(w.ResourceInterface.Apply(ctx, name, u, o, subresources...))
}

// Delete also tells the source, if the UID is known.
func (w writer) Delete(ctx context.Context, name string, o metav1.DeleteOptions, subresources ...string) error {
	err := w.ResourceInterface.Delete(ctx, name, o, subresources...)
	if err == nil && o.Preconditions != nil && o.Preconditions.UID != nil {
		w.source.deleted(Key{w.cluster, w.namespace, name}, *o.Preconditions.UID)
	}
	return err
}

// Version identifies the content of an object: it changes when another client changes the content, or replaces the
// object by another one of its name, but not with the status.
type Version struct {
	uid        types.UID
	generation int64
	resource   string
}

// VersionOf returns the version of an object. One without a generation, such as a ConfigMap, has no status either, so
// each change counts.
func VersionOf(u *unstructured.Unstructured) Version {
	v := Version{uid: u.GetUID(), generation: u.GetGeneration()}
	if v.generation == 0 {
		v.resource = u.GetResourceVersion()
	}
	return v
}
