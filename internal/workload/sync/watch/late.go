package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
)

// mostWaiting is how many bytes of objects of a source wait to be decoded at most: then the watch is not read. One
// object can be larger.
const mostWaiting = 32 << 20

// late is an object of a watch that is not decoded yet, except what identifies it and its version.
type late struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	raw  []byte
	gone bool
	// shown is the resourceVersion up to which the source shows what became of the object.
	shown uint64
}

// DeepCopyObject implements runtime.Object. What was read is not changed.
func (l *late) DeepCopyObject() runtime.Object { return l }

func newLate(raw []byte) (*late, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name            string            `json:"name"`
			Namespace       string            `json:"namespace"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil, err
	}
	if head.Kind == "" {
		return nil, errors.New("an object of a watch has no kind") // it could not be decoded
	}
	l := &late{TypeMeta: head.TypeMeta, raw: raw}
	l.Name = head.Metadata.Name
	l.Namespace = head.Metadata.Namespace
	l.ResourceVersion = head.Metadata.ResourceVersion
	l.Annotations = head.Metadata.Annotations
	return l, nil
}

// stream is a watch. One goroutine does all that each event needs: if several handed an event to each other, each would
// wait for its turn on a processor, behind the work of a tenant whose objects change all the time.
type stream struct {
	events chan apiwatch.Event
	stop   context.CancelFunc
}

func (s stream) Stop()                             { s.stop() }
func (s stream) ResultChan() <-chan apiwatch.Event { return s.events }

// stream watches a resource. The watch also ends when an event cannot be read: the reflector continues it, or lists
// again.
func (s *source) stream(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	prefix := []string{"apis", s.Resource.Group}
	if s.Resource.Group == "" {
		prefix = []string{"api"}
	}
	o.Watch = true
	body, err := s.client.Get().AbsPath(append(prefix, s.Resource.Version, s.Resource.Resource)...).
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	out := stream{make(chan apiwatch.Event, eventsAhead), cancel}
	s.set.work.Go(func() {
		defer close(out.events)
		defer cancel()
		defer body.Close() //nolint:errcheck // it was read
		for in := json.NewDecoder(body); ; {
			e, err := s.event(in)
			if err != nil {
				return
			}
			select {
			case out.events <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	return out, nil
}

// event reads an event. One that says that the watch cannot be continued, such as 410 Gone, is recorded: the reflector
// waits before it lists again.
func (s *source) event(in *json.Decoder) (e apiwatch.Event, err error) {
	var next struct {
		Type   apiwatch.EventType
		Object json.RawMessage
	}
	if err := in.Decode(&next); err != nil {
		return e, err
	}
	e.Type = next.Type
	if e.Type == apiwatch.Error {
		s.setStale(true)
		status := &metav1.Status{}
		e.Object = status
		return e, json.Unmarshal(next.Object, status)
	}
	e.Object, err = newLate(next.Object)
	return e, err
}

// line has the objects of a watch until they are decoded. All tenants share the watch, so it is read as fast as it
// comes, and their objects are decoded in turn: a tenant whose objects change all the time does not delay
// the others, and only the last version of each object is decoded.
type line struct {
	turns workqueue.TypedInterface[Key]
	// mu is not held for work, unlike the lock of the source, which can be held when it is taken. room is for what
	// waits until there is less in the line.
	mu    sync.Mutex
	room  *sync.Cond
	late  map[Key]*late
	bytes int
	// read is the last resourceVersion of the watch, or of a list.
	read uint64
}

func newLine() *line {
	tenant := func(k Key) string { return cmp.Or(k.Cluster, k.Namespace) }
	l := &line{turns: queue.Plain(1, tenant), late: map[Key]*late{}}
	l.room = sync.NewCond(&l.mu)
	return l
}

// add puts an object into the line, in the place of an earlier version.
func (l *line) add(o *late) {
	k := KeyOf(o)
	l.mu.Lock()
	for l.bytes > 0 && l.bytes+len(o.raw) > mostWaiting {
		l.room.Wait()
	}
	o.shown = l.read
	if was := l.late[k]; was != nil {
		o.shown = was.shown
		l.bytes -= len(was.raw)
	}
	l.late[k] = o
	l.bytes += len(o.raw)
	l.read = versionOf(o.ResourceVersion)
	l.mu.Unlock()
	l.turns.Add(k)
}

func (l *line) of(k Key) *late {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late[k]
}

// done removes an object that is shown, unless a later version has taken its place.
func (l *line) done(k Key, o *late) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if newer := l.late[k]; newer != o {
		newer.shown = versionOf(o.ResourceVersion)
		return
	}
	delete(l.late, k)
	l.bytes -= len(o.raw)
	l.room.Signal()
}

// empty removes all objects: a list has them in its version.
func (l *line) empty(version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.late)
	l.bytes = 0
	l.read = version
}

// shown returns the resourceVersion up to which the source shows what became of an object.
func (l *line) shown(k Key) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.late[k]; o != nil {
		return o.shown
	}
	return l.read
}

// decode decodes what waits, until the watch has ended.
func (s *source) decode() {
	for {
		k, ended := s.line.turns.Get()
		if ended {
			return
		}
		if s.next(k) {
			s.set.o.Changed(s.Resource, k)
		}
		s.line.turns.Done(k)
	}
}

// next shows an object that waits. It returns false if there is none: a list has come since.
func (s *source) next(k Key) bool {
	s.decoding.Lock()
	defer s.decoding.Unlock()
	o := s.line.of(k)
	if o == nil {
		return false
	}
	if s.showsOwn(k, o) {
		return true
	}
	h := held{}
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON(o.raw)
	if err == nil && !o.gone {
		h = s.set.hold(u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.done(k, o)
	if err != nil {
		s.stale = true // until the next list
		return false
	}
	if h, ok := s.shows(k, u, h); ok {
		if o.gone {
			delete(s.own, k)
			h = held{}
		}
		s.put(k, h)
	}
	return true
}
