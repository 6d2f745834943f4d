package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Logs copies the logs of all containers of a component's pods. Where there are several, each line begins with its origin, as
// with kubectl logs --prefix. With Follow it goes on until ctx ends, also with containers that start meanwhile.
func (r *Runtime) Logs(ctx context.Context, c *topology.Component, o run.LogOptions, w io.Writer) error {
	ctx = quiet(ctx)
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return err
	}
	pods, err := s.podsOf(ctx, c)
	if err != nil {
		return err
	}
	sources := logSources(pods)
	if len(sources) == 0 {
		return clierr.New(clierr.Failed, "see why with: kcpctl status", "%s has no pods (%s)", c.ID(), s.where())
	}
	out := &lines{w: w}
	if o.Follow && !o.Previous {
		return r.follow(ctx, s, c, o, out)
	}
	out.from(sources)
	g, ctx := errgroup.WithContext(ctx)
	for _, src := range sources {
		g.Go(func() error { return s.copyLog(ctx, src, query(src, o), out) })
	}
	return g.Wait()
}

// podsOf lists the pods of a component.
func (s *site) podsOf(ctx context.Context, c *topology.Component) ([]*corev1.Pod, error) {
	l, err := s.resource(pods()).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(c.Selector()).String()})
	if err != nil {
		return nil, s.explain(err, "list pods")
	}
	out := make([]*corev1.Pod, len(l.Items))
	for i := range l.Items {
		out[i] = &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// logSource is a container that logs.
type logSource struct {
	pod, container string
	// id is that of the running container, or of the one that ended last. It is empty before the first one starts.
	id string
}

func (src logSource) prefix() string { return "[pod/" + src.pod + "/" + src.container + "] " }

func logSources(pods []*corev1.Pod) []logSource {
	var out []logSource
	for _, p := range pods {
		ids := map[string]string{}
		for _, st := range p.Status.ContainerStatuses {
			ids[st.Name] = st.ContainerID
		}
		for _, c := range p.Spec.Containers {
			out = append(out, logSource{pod: p.Name, container: c.Name, id: ids[c.Name]})
		}
	}
	return out
}

// query asks for a log as the options say.
func query(src logSource, o run.LogOptions) url.Values {
	q := url.Values{"container": {src.container}}
	if o.Previous {
		q.Set("previous", "true")
	}
	if o.Tail > 0 {
		q.Set("tailLines", strconv.FormatInt(o.Tail, 10))
	}
	return q
}

func (s *site) copyLog(ctx context.Context, src logSource, q url.Values, out *lines) error {
	stream, err := s.open(ctx, s.podPath(src.pod, "log"), q, nil)
	if err != nil {
		return s.explain(err, "read the log of Pod/%s/%s", s.Namespace, src.pod)
	}
	defer stream.Close()
	return out.copy(src, stream)
}

// lines is a writer that several logs share, line by line.
type lines struct {
	mu      sync.Mutex
	w       io.Writer
	origins map[string]bool
}

// from says where lines will come from. As soon as there are several such places, each line begins with its own.
func (l *lines) from(sources []logSource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.origins == nil {
		l.origins = map[string]bool{}
	}
	for _, src := range sources {
		l.origins[src.prefix()] = true
	}
}

// sinkError is that nobody takes the lines any more, brokenError that a log ended before its container did.
type (
	sinkError   struct{ error }
	brokenError struct{ error }
)

func (l *lines) copy(src logSource, r io.Reader) error {
	for buf := bufio.NewReader(r); ; {
		line, err := buf.ReadString('\n')
		if line != "" {
			if err := l.print(src.prefix(), strings.TrimSuffix(line, "\n")+"\n"); err != nil {
				return sinkError{fmt.Errorf("write log: %w", err)}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return brokenError{fmt.Errorf("the log of Pod/%s broke off: %w", src.pod, err)}
		}
	}
}

func (l *lines) print(prefix, line string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.origins) > 1 {
		line = prefix + line
	}
	_, err := io.WriteString(l.w, line)
	return err
}
