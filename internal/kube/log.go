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

// Logs copies the logs of all containers of a component's pods. Where there are several, each line begins with its origin.
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
	g, ctx := errgroup.WithContext(ctx) // all at once: those that are followed do not end
	for _, src := range sources {
		if len(sources) == 1 {
			src.prefix = ""
		}
		g.Go(func() error { return s.copyLog(ctx, src, o, out) })
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
type logSource struct{ pod, container, prefix string }

func logSources(pods []*corev1.Pod) []logSource {
	var out []logSource
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			src := logSource{pod: p.Name, container: c.Name, prefix: "[" + p.Name + "] "}
			if len(p.Spec.Containers) > 1 {
				src.prefix = "[" + p.Name + "/" + c.Name + "] "
			}
			out = append(out, src)
		}
	}
	return out
}

func (s *site) copyLog(ctx context.Context, src logSource, o run.LogOptions, out *lines) error {
	q := url.Values{"container": {src.container}}
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Previous {
		q.Set("previous", "true")
	}
	if o.Tail > 0 {
		q.Set("tailLines", strconv.FormatInt(o.Tail, 10))
	}
	stream, err := s.open(ctx, s.podPath(src.pod, "log"), q, nil)
	if err != nil {
		return s.explain(err, "read the log of Pod/%s/%s", s.Namespace, src.pod)
	}
	defer stream.Close()
	return out.copy(src.prefix, stream)
}

// lines is a writer that several logs share, line by line.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) copy(prefix string, r io.Reader) error {
	for buf := bufio.NewReader(r); ; {
		line, err := buf.ReadString('\n')
		if line != "" {
			if err := l.print(prefix + strings.TrimSuffix(line, "\n") + "\n"); err != nil {
				return fmt.Errorf("write log: %w", err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
}

func (l *lines) print(line string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, line)
	return err
}
