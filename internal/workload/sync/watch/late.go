package watch

import (
	"cmp"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
)

// mostWaiting is how many bytes of objects of a source wait to be decoded at most: then the watch is not read. One object
// can be larger.
const mostWaiting = 32 << 20

// late is an object of a watch that is not decoded yet, but for what identifies it and its version.
type late struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	raw []byte
	// gone means that it was deleted.
	gone bool
	// shown is the resourceVersion up to which the source shows what became of the object.
	shown uint64
}

// DeepCopyObject implements runtime.Object. What was read is not changed.
func (l *late) DeepCopyObject() runtime.Object { return l }

// lateSerializer decodes the objects of watches late. client-go hands everything else a place, or it is a Status.
type lateSerializer struct{ runtime.NegotiatedSerializer }

func (s lateSerializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return lateDecoder{s.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type lateDecoder struct{ runtime.Decoder }

func (d lateDecoder) Decode(raw []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil {
		return d.Decoder.Decode(raw, defaults, into)
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name            string            `json:"name"`
			Namespace       string            `json:"namespace"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil, nil, err
	}
	if head.Kind == "" || head.Kind == "Status" {
		return d.Decoder.Decode(raw, defaults, nil)
	}
	l := &late{TypeMeta: head.TypeMeta, raw: raw}
	l.Name, l.Namespace, l.ResourceVersion = head.Metadata.Name, head.Metadata.Namespace, head.Metadata.ResourceVersion
	l.Annotations = head.Metadata.Annotations
	kind := head.GroupVersionKind()
	return l, &kind, nil
}

// line has the objects that a watch has brought, until they are decoded. All tenants share the watch, so it is read as fast
// as it comes, and their objects are decoded in turn: a tenant whose objects change all the time does not delay the
// objects of others, and of its own, only the last versions are decoded.
type line struct {
	turns workqueue.TypedInterface[Key]
	// decoding is held while an object is decoded: a list must not come in between.
	decoding sync.Mutex

	// The lock of the source is held for the following. room is for what waits until there is less in the line.
	late  map[Key]*late
	bytes int
	room  *sync.Cond
}

func newLine(mu sync.Locker) line {
	tenant := func(k Key) string { return cmp.Or(k.Cluster, k.Namespace) }
	return line{turns: queue.Plain(1, tenant), late: map[Key]*late{}, room: sync.NewCond(mu)}
}

// put replaces the object that waits, by nil to remove it. The source is locked.
func (l *line) put(k Key, next *late) {
	if was := l.late[k]; was != nil {
		l.bytes -= len(was.raw)
		delete(l.late, k)
	}
	if next != nil {
		l.bytes += len(next.raw)
		l.late[k] = next
	}
	l.room.Signal()
}

// empty removes all objects. The source is locked.
func (l *line) empty() {
	clear(l.late)
	l.bytes = 0
}

// wait puts an object into the line, in the place of an earlier version.
func (s *source) wait(l *late) {
	k := KeyOf(l)
	s.mu.Lock()
	for s.bytes > 0 && s.bytes+len(l.raw) > mostWaiting {
		s.room.Wait()
	}
	l.shown = s.shown(k)
	s.line.put(k, l)
	s.read = versionOf(l.ResourceVersion)
	s.mu.Unlock()
	s.turns.Add(k)
}

// shown returns the resourceVersion up to which the source shows what became of an object. The source is locked.
func (s *source) shown(k Key) uint64 {
	if l := s.late[k]; l != nil {
		return l.shown
	}
	return s.read
}

// decode decodes what waits, until the watch has ended.
func (s *source) decode() {
	for {
		k, ended := s.turns.Get()
		if ended {
			return
		}
		if s.next(k) {
			s.set.o.Changed(s.Resource, k)
		}
		s.turns.Done(k)
	}
}

// next shows an object that waits. It returns false if there is none: a list has come since.
func (s *source) next(k Key) bool {
	s.decoding.Lock()
	defer s.decoding.Unlock()
	s.mu.RLock()
	l := s.late[k]
	s.mu.RUnlock()
	if l == nil {
		return false
	}
	u, h := &unstructured.Unstructured{}, held{}
	err := u.UnmarshalJSON(l.raw)
	if err == nil && !l.gone {
		h = s.set.hold(u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if newer := s.late[k]; newer != l {
		newer.shown = versionOf(l.ResourceVersion)
	} else {
		s.line.put(k, nil)
	}
	if err != nil {
		s.stale = true // until the next list
		return false
	}
	if h, ok := s.shows(k, u, h); ok {
		if l.gone {
			delete(s.own, k)
			h = held{}
		}
		s.put(k, h)
	}
	return true
}
