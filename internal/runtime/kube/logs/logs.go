// Package logs copies the logs of a component's containers, and follows containers that come and go.
package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Options say what to copy of a container's log.
type Options struct {
	// Previous copies the log of the container's previous instance.
	Previous bool
	// Tail is the number of last lines; nil is all.
	Tail *int64
	// Since and SinceTime omit older lines. Zero omits none.
	Since     time.Duration
	SinceTime time.Time
	// Timestamps prints the time of each line before it.
	Timestamps bool
}

// ErrNoPrevious is the error if no container has a previous instance.
var ErrNoPrevious = errors.New("no container has a previous instance")

// Copy copies the logs of all containers of some pods. If there are several containers, each line begins with its
// source, as with kubectl logs --prefix. A container without a log, for example because its image cannot be pulled,
// does not hide the logs of others: Copy returns its error when they are complete.
func Copy(ctx context.Context, cl *cluster.Client, pods []*corev1.Pod, o Options, w io.Writer) error {
	all := sources(pods)
	out := &lineWriter{w: w}
	out.add(all)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := parallel.Map(parallel.Limit, all, func(s source) error {
		if o.Previous && s.id == "" {
			return ErrNoPrevious // it has never started
		}
		err := copyLog(ctx, cl, s, query(s, o), out)
		if _, cannotWrite := errors.AsType[writeError](err); cannotWrite {
			cancel(err)
		}
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, ErrNoPrevious) })
	if len(failed) == 0 && len(all) > 0 {
		return ErrNoPrevious
	}
	return parallel.Join(failed)
}

// source is a container that logs.
type source struct {
	pod, container string
	// id is the ID of the running container, or of the one that ended last. It is empty until the first one starts.
	id string
}

func (s source) prefix() string { return "[pod/" + s.pod + "/" + s.container + "] " }

func sources(pods []*corev1.Pod) []source {
	var out []source
	for _, p := range pods {
		ids := map[string]string{}
		for _, st := range p.Status.ContainerStatuses {
			ids[st.Name] = st.ContainerID
		}
		for _, c := range p.Spec.Containers {
			out = append(out, source{pod: p.Name, container: c.Name, id: ids[c.Name]})
		}
	}
	return out
}

// query is the query of a request for a log.
func query(s source, o Options) url.Values {
	q := url.Values{"container": {s.container}}
	if o.Previous {
		q.Set("previous", "true")
	}
	if o.Tail != nil {
		q.Set("tailLines", strconv.FormatInt(*o.Tail, 10))
	}
	if o.Since > 0 {
		// Rounded up, as in kubectl. The node's clock counts, which may differ from the one here.
		q.Set("sinceSeconds", strconv.FormatInt(int64((o.Since+time.Second-1)/time.Second), 10))
	}
	if !o.SinceTime.IsZero() {
		q.Set("sinceTime", o.SinceTime.UTC().Format(time.RFC3339))
	}
	if o.Timestamps {
		q.Set("timestamps", "true")
	}
	return q
}

func copyLog(ctx context.Context, cl *cluster.Client, s source, q url.Values, out *lineWriter) error {
	stream, err := cl.Stream(ctx, cl.PodPath(s.pod, "log"), q)
	if apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "previous terminated container") {
		return ErrNoPrevious // (kubernetes: pkg/kubelet/kubelet_pods.go, validateContainerLogStatus)
	}
	if err != nil {
		return cl.Explain(err, "read the log of Pod/%s/%s", cl.Namespace, s.pod)
	}
	defer stream.Close()
	return out.copy(s, stream)
}

// lineWriter is a writer that several logs share, line by line.
type lineWriter struct {
	mu       sync.Mutex
	w        io.Writer
	prefixes map[string]bool
}

// add announces sources of lines. Once there are several, each line begins with its source.
func (l *lineWriter) add(sources []source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prefixes == nil {
		l.prefixes = map[string]bool{}
	}
	for _, s := range sources {
		l.prefixes[s.prefix()] = true
	}
}

// writeError means that the output cannot be written, and interruptedError that a log ended before its container did.
type (
	writeError       struct{ error }
	interruptedError struct{ error }
)

func (l *lineWriter) copy(s source, r io.Reader) error {
	for buf := bufio.NewReader(r); ; {
		line, err := buf.ReadString('\n')
		if line != "" {
			if err := l.write(s.prefix(), strings.TrimSuffix(line, "\n")+"\n"); err != nil {
				return writeError{fmt.Errorf("write log: %w", err)}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return interruptedError{fmt.Errorf("the log of Pod/%s was interrupted: %w", s.pod, err)}
		}
	}
}

func (l *lineWriter) write(prefix, line string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.prefixes) > 1 {
		line = prefix + line
	}
	_, err := io.WriteString(l.w, line)
	return err
}
