// Package bundle collects what helps to find a fault in a kcp into one archive, without secrets.
package bundle

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/redact"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// Timeout is how long a part of a bundle may take: a cluster that does not answer must not delay the others much.
const Timeout = time.Minute

// Bundle is an archive that is collected.
type Bundle struct {
	// Unconnected is why the runtime could not be opened. Nil: it is open.
	Unconnected error
	// Files are the files that were collected.
	Files []File

	setup     *v1alpha1.Setup
	runtime   run.Runtime
	history   []plan.Revision
	noHistory error
	secrets   *redact.Redactor
}

// File is a file that was collected, and why it is not complete.
type File struct {
	Name, About string
	Err         error
}

// Part is a file to collect.
type Part struct {
	File, About string
	Text        func(context.Context) ([]byte, error)
}

// LeftOut returns the kinds of content that no bundle has.
func LeftOut() []string {
	return []string{
		"Secrets, private keys, tokens, kubeconfigs and Authorization headers",
		"users and passwords in URLs",
		"values of flags (extraArgs) and of variables, and other values that kcpctl passes on as they are",
		"comments of the setup file",
		"content of workspaces",
	}
}

// New returns a bundle about a setup, whose file is in a directory. It knows the secrets there.
func New(s *v1alpha1.Setup, dir string) *Bundle {
	b := &Bundle{setup: s, secrets: redact.New()}
	_, _ = b.secrets.Setup(s) // it fails again when its part is collected
	b.knowReferences(dir)
	return b
}

// knowReferences gets to know the Secrets next to the setup file, which are used with --local.
func (b *Bundle) knowReferences(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "secrets", "*", "*"))
	if err != nil {
		return
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		b.secrets.Know(string(text))
		for line := range strings.Lines(string(text)) {
			token, _, _ := strings.Cut(line, ",") // a file with tokens: token,user,uid
			b.secrets.Know(strings.TrimSpace(token))
		}
	}
}

// Open opens the runtime with connect, and gets to know the secrets that it has. What cannot be read is not known; the
// forms of secrets are removed in any case.
func (b *Bundle) Open(ctx context.Context, connect func(context.Context) (run.Runtime, error)) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if b.runtime, b.Unconnected = connect(ctx); b.Unconnected != nil {
		b.noHistory = b.Unconnected
		return
	}
	b.runtime.LeaveOut(b.runtime.Unreachable(ctx))
	if state, err := b.runtime.Store().Load(ctx); err == nil {
		b.secrets.KnowKeys(state)
	}
	b.history, b.noHistory = b.runtime.History(ctx)
	for _, r := range b.history {
		if f, err := setup.Parse("revision", r.Setup); err == nil {
			_, _ = b.secrets.Setup(f.Setup)
		}
	}
}

// Text removes secrets from a text.
func (b *Bundle) Text(text string) string { return string(b.secrets.Text([]byte(text))) }

// Setup returns the setup file with its defaults.
func (b *Bundle) Setup(context.Context) ([]byte, error) { return b.secrets.Setup(b.setup) }

// Applied returns the setup that was applied last.
func (b *Bundle) Applied(context.Context) ([]byte, error) {
	text, _ := plan.Latest(b.history)
	if b.noHistory != nil || text == nil {
		return []byte("no setup was applied completely\n"), b.noHistory
	}
	f, err := setup.Parse("the applied setup", text)
	if err != nil {
		return nil, err
	}
	return b.secrets.Setup(f.Setup)
}

// connected returns what reads a part from the runtime.
func (b *Bundle) connected(read func(context.Context) ([]byte, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if b.Unconnected != nil {
			return nil, b.Unconnected
		}
		return read(ctx)
	}
}

// PreviousLog returns the last lines before a component was restarted. Most components were not: this is not an error.
func (b *Bundle) PreviousLog(c *topology.Component, tail int64) func(context.Context) ([]byte, error) {
	return b.connected(func(ctx context.Context) ([]byte, error) {
		var out bytes.Buffer
		err := b.runtime.Logs(ctx, c, run.LogOptions{Previous: true, Tail: &tail}, &out)
		if errors.Is(err, run.ErrNoPrevious) {
			return []byte(err.Error() + "\n"), nil
		}
		return out.Bytes(), err
	})
}

// State returns the state of a component.
func (b *Bundle) State(c *topology.Component) func(context.Context) ([]byte, error) {
	return b.connected(func(ctx context.Context) ([]byte, error) {
		s, err := b.runtime.State(ctx, c)
		if err != nil {
			return nil, err
		}
		return yaml.Marshal(s)
	})
}

// Events returns the events of the namespace on a cluster.
func (b *Bundle) Events(ctx context.Context, on topology.Cluster) ([]unstructured.Unstructured, error) {
	if b.Unconnected != nil {
		return nil, b.Unconnected
	}
	return b.runtime.Find(ctx, plan.Ref{
		Cluster: on.Name, Namespace: on.Namespace, GroupVersionKind: kind.Event.GroupVersionKind,
	}, "")
}

// Pods describes the pods of a component, without the parts that can hold secrets: arguments, variables, annotations.
func (b *Bundle) Pods(c *topology.Component) func(context.Context) ([]byte, error) {
	return b.connected(func(ctx context.Context) ([]byte, error) {
		all, err := b.runtime.Find(ctx, plan.Ref{
			Cluster: c.Cluster.Name, Namespace: c.Cluster.Namespace, GroupVersionKind: kind.Pod.GroupVersionKind,
		}, labels.SelectorFromSet(c.Selector()).String())
		if err != nil {
			return nil, err
		}
		var out []any
		for _, p := range all {
			out = append(out, describePod(p.Object))
		}
		return yaml.Marshal(out)
	})
}

func describePod(pod map[string]any) map[string]any {
	metadata, _ := pod["metadata"].(map[string]any)
	spec, _ := pod["spec"].(map[string]any)
	var containers []any
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := spec[list].([]any)
		for _, item := range all {
			c, _ := item.(map[string]any)
			containers = append(containers, only(c, "name", "image", "imagePullPolicy", "resources", "ports"))
		}
	}
	return map[string]any{
		"metadata": only(metadata, "name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp",
			"deletionGracePeriodSeconds", "ownerReferences"),
		"spec": map[string]any{
			"containers": containers, "nodeName": spec["nodeName"], "nodeSelector": spec["nodeSelector"],
			"tolerations": spec["tolerations"], "priorityClassName": spec["priorityClassName"],
		},
		"status": pod["status"],
	}
}

// only returns some fields of an object.
func only(o map[string]any, fields ...string) map[string]any {
	out := map[string]any{}
	for _, f := range fields {
		if v, ok := o[f]; ok {
			out[f] = v
		}
	}
	return out
}
