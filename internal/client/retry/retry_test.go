package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var (
	errPasses = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	errLost   = errors.New("lost the lock")
	errStays  = apierrors.NewBadRequest("what?")
)

// failing does something that fails a number of times, and counts how often it is done.
func failing(times int, with error, done *int) func() (string, error) {
	return func() (string, error) {
		if *done++; *done <= times {
			return "", with
		}
		return "done", nil
	}
}

func TestDo(t *testing.T) {
	const ever = 1 << 30
	for name, tc := range map[string]struct {
		times int
		with  error
		// tries and after are the number of tries and their duration, slow is whether OnSlow was called.
		tries int
		after time.Duration
		slow  bool
		fails error
	}{
		"works":                 {0, nil, 1, 0, false, nil},
		"works again":           {2, errPasses, 3, 600 * time.Millisecond, false, nil},
		"works again after all": {4, errPasses, 5, 3 * time.Second, true, nil},
		"never works":           {ever, errPasses, 11, Limit, true, errPasses},
		"fails for good":        {ever, errStays, 1, 0, false, errStays},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, tries, slow := time.Now(), 0, false
				p := Policy{Limit, IsTransient, func(error) { slow = true }}
				out, err := Do(t.Context(), p, failing(tc.times, tc.with, &tries))
				require.Equal(t, tc.fails, err)
				require.Equal(t, tc.fails == nil, out == "done")
				require.Equal(t, tc.tries, tries)
				require.Equal(t, tc.after, time.Since(begun))
				require.Equal(t, tc.slow, slow)
			})
		})
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errLost) })
		tries := 0
		_, err := Do(ctx, Policy{Limit: Limit, Retriable: IsTransient}, failing(100, errPasses, &tries))
		require.ErrorIs(t, err, errLost)
		require.Equal(t, 3, tries)
	})
}

func TestWithTimeout(t *testing.T) {
	hang := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := WithTimeout(t.Context(), hang)
		require.ErrorIs(t, err, ErrNoAnswer)
		require.True(t, IsTransient(err))
		require.Equal(t, AnswerTimeout, time.Since(begun))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = WithTimeout(ctx, hang)
		require.ErrorIs(t, err, context.Canceled, "it is the caller who gave up")
	})
}

// silent is a resource whose watches begin after a while.
type silent struct {
	dynamic.ResourceInterface
	after time.Duration
}

func (s silent) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	select {
	case <-time.After(s.after):
		w := watch.NewFake()
		context.AfterFunc(ctx, w.Stop)
		return w, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestWatchStartsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := resource{silent{after: AnswerTimeout / 2}, nil}.Watch(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.False(t, w.(*watch.FakeWatcher).IsStopped(), "a watch that has started continues")
		cancel()
		<-w.ResultChan()
		_, err = resource{silent{after: 2 * AnswerTimeout}, nil}.Watch(t.Context(), metav1.ListOptions{})
		require.ErrorIs(t, err, ErrNoAnswer)
	})
}

// lossy is a resource that carries out requests, and loses its first answers.
type lossy struct {
	dynamic.ResourceInterface
	lose  int
	live  *unstructured.Unstructured
	wrote int
}

func (l *lossy) answer(err error) (*unstructured.Unstructured, error) {
	if l.lose--; l.lose >= 0 {
		return nil, errPasses
	}
	return l.live, err
}

func (l *lossy) Create(_ context.Context, u *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if l.live != nil {
		return l.answer(apierrors.NewAlreadyExists(schema.GroupResource{}, u.GetName()))
	}
	l.live = u.DeepCopy()
	l.live.SetUID("made")
	l.wrote++
	return l.answer(nil)
}

func (l *lossy) Update(_ context.Context, u *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if l.live.GetResourceVersion() != u.GetResourceVersion() {
		return l.answer(apierrors.NewConflict(schema.GroupResource{}, u.GetName(), errors.New("modified")))
	}
	l.live = u.DeepCopy()
	l.live.SetResourceVersion("2")
	l.wrote++
	return l.answer(nil)
}

func (l *lossy) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return l.live, nil
}

// thing is an object with some content.
func thing(content, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "a", "resourceVersion": version}, "content": content,
	}}
}

// An object whose answer was lost is neither written twice nor mistaken for another writer's.
func TestLostAnswers(t *testing.T) {
	create := func(ctx context.Context, p resource) (*unstructured.Unstructured, error) {
		return p.Create(ctx, thing("ours", ""), metav1.CreateOptions{})
	}
	update := func(ctx context.Context, p resource) (*unstructured.Unstructured, error) {
		return p.Update(ctx, thing("ours", "1"), metav1.UpdateOptions{})
	}
	for name, tc := range map[string]struct {
		do    func(context.Context, resource) (*unstructured.Unstructured, error)
		lose  int
		live  *unstructured.Unstructured
		wrote int
		taken bool
	}{
		"create":                         {create, 0, nil, 1, false},
		"create, lost":                   {create, 1, nil, 1, false},
		"create, lost twice":             {create, 2, nil, 1, false},
		"create, it exists":              {create, 0, thing("theirs", "1"), 0, true},
		"create, it exists, lost":        {create, 1, thing("theirs", "1"), 0, true},
		"create, an equal object exists": {create, 0, thing("ours", "1"), 0, true},
		"update":                         {update, 0, thing("before", "1"), 1, false},
		"update, lost":                   {update, 1, thing("before", "1"), 1, false},
		"update, it was changed":         {update, 0, thing("theirs", "2"), 0, true},
		"update, it was changed, lost":   {update, 1, thing("theirs", "2"), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lossy{lose: tc.lose, live: tc.live}
				out, err := tc.do(t.Context(), resource{l, nil})
				require.Equal(t, tc.wrote, l.wrote)
				if tc.taken {
					require.True(t, IsWriteConflict(err), "%v", err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "ours", out.Object["content"])
			})
		})
	}
}
