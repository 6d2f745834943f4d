package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/redact"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// bundle is an archive that is collected.
type bundle struct {
	session *session
	// input is the setup file, if it is stdin, and args are the flags that lead to the setup.
	input string
	args  []string
	tail  int64
	now   time.Time
	// unconnected is why the runtime could not be opened.
	unconnected error
	history     []plan.Revision
	noHistory   error
	secrets     *redact.Redactor
	files       []bundleFile
}

// bundlePart is a file of a bundle.
type bundlePart struct {
	file, about string
	text        func(context.Context) ([]byte, error)
}

// bundleFile is a file that was collected, and why it is not complete.
type bundleFile struct {
	name, about string
	err         error
}

// leftOut returns the kinds of content that no bundle has.
func leftOut() []string {
	return []string{
		"Secrets, private keys, tokens, kubeconfigs and Authorization headers",
		"users and passwords in URLs",
		"values of flags (extraArgs) and of variables, and other values that kcpctl passes on as they are",
		"comments of the setup file",
		"content of workspaces",
	}
}

func (b *bundle) directory() string {
	return fmt.Sprintf("kcpctl-%s-%s", b.session.topology.Name, b.now.Format("20060102T150405Z"))
}

// open connects, and gets to know the secrets that must not be in the bundle. What cannot be read is not known; the
// forms of secrets are removed in any case.
func (b *bundle) open(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	s := b.session
	b.secrets = redact.New()
	_, _ = b.secrets.Setup(s.file.Setup) // it fails again when its part is collected
	b.knowReferences(s.flags.directory())
	if b.unconnected = s.connect(ctx); b.unconnected != nil {
		b.noHistory = b.unconnected
		return
	}
	s.runtime.LeaveOut(s.runtime.Unreachable(ctx))
	if state, err := s.store().Load(ctx); err == nil {
		b.secrets.KnowKeys(state)
	}
	if b.history, b.noHistory = s.runtime.History(ctx); b.noHistory != nil {
		return
	}
	for _, r := range b.history {
		if f, err := setup.Parse("revision", r.Setup); err == nil {
			_, _ = b.secrets.Setup(f.Setup)
		}
	}
}

// knowReferences gets to know the Secrets next to the setup file, which are used with --local.
func (b *bundle) knowReferences(dir string) {
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

// parts are the files of the bundle.
func (b *bundle) parts() []bundlePart {
	out := []bundlePart{
		{"version.txt", "the version of kcpctl", b.command("version")},
		{"exit-codes.txt", "what the exit codes mean", b.command("help", "exit-codes")},
		{"setup.yaml", "the setup file, with defaults", b.setup},
		{"applied.yaml", "the setup that was applied last", b.applied},
		{"status.txt", "kcpctl status", b.command("status", "--all")},
		{"status.yaml", "kcpctl status -o yaml", b.command("status", "--output=yaml")},
		{"check.txt", "kcpctl check", b.command("check", "--output=wide")},
		{"certificates.txt", "kcpctl certs list", b.command("certs", "list", "--all")},
		{"history.txt", "kcpctl history", b.command("history")},
		{"diff.txt", "which objects kcpctl up would change", b.diff},
	}
	if b.session.layout == nil {
		for _, c := range b.session.topology.Clusters {
			out = append(out, bundlePart{"events-" + c.Name + ".txt", "events of the namespace on cluster " + c.Name,
				func(ctx context.Context) ([]byte, error) { return b.events(ctx, c) }})
		}
	}
	for _, c := range b.session.topology.Running() {
		out = append(out, b.partsOf(c)...)
	}
	return out
}

// partsOf are the files about a component.
func (b *bundle) partsOf(c *topology.Component) []bundlePart {
	id := string(c.ID())
	dir := "components/" + strings.ReplaceAll(id, "/", "-") + "/"
	logs := []string{"logs", fmt.Sprintf("--tail=%d", b.tail), id}
	out := []bundlePart{
		{dir + "state.yaml", "the state of " + id,
			func(ctx context.Context) ([]byte, error) { return b.state(ctx, c) }},
		{dir + "log.txt", "its last lines", b.command(logs...)},
		{dir + "previous-log.txt", "those before its last restart", b.previousLog(c)},
	}
	if b.session.layout == nil {
		out = append(out, bundlePart{dir + "pods.yaml", "its pods",
			func(ctx context.Context) ([]byte, error) { return b.pods(ctx, c) }})
	}
	return out
}

// previousLog returns the last lines before a component was restarted. Most components were not: this is not an error.
func (b *bundle) previousLog(c *topology.Component) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if b.unconnected != nil {
			return nil, b.unconnected
		}
		var out bytes.Buffer
		err := b.session.runtime.Logs(ctx, c, run.LogOptions{Previous: true, Tail: &b.tail}, &out)
		if errors.Is(err, run.ErrNoPrevious) {
			return []byte(err.Error() + "\n"), nil
		}
		return out.Bytes(), err
	}
}

// command returns the output of a command of kcpctl, with its exit code if it is not 0.
func (b *bundle) command(args ...string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		var out, errs bytes.Buffer
		size := func() (int, int) { return 0, 0 }
		env := b.session.env.withStreams(&ui.Streams{
			In: strings.NewReader(b.input), Out: &ui.Stream{Writer: &out, Size: size},
			Err: &ui.Stream{Writer: &errs, Size: size},
		})
		all := append(args[:len(args):len(args)], "--plain", "--color=never")
		if args[0] != "version" && args[0] != "help" {
			all = append(all, b.args...)
		}
		code := Main(ctx, all, env)
		text := append(out.Bytes(), errs.Bytes()...)
		if code == 0 {
			return text, nil
		}
		text = fmt.Appendf(text, "exit code %d\n", code)
		if out.Len() > 0 && code != clierr.Interrupted {
			return text, nil // it has found out what it reports
		}
		return text, errors.New(strings.TrimPrefix(firstLine(strings.TrimSpace(errs.String())), "kcpctl: "))
	}
}

func (b *bundle) setup(context.Context) ([]byte, error) { return b.secrets.Setup(b.session.file.Setup) }

func (b *bundle) applied(context.Context) ([]byte, error) {
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

// diff lists the objects that up would change, without their content.
func (b *bundle) diff(ctx context.Context) ([]byte, error) {
	if b.unconnected != nil {
		return nil, b.unconnected
	}
	p, _, err := run.Compare(ctx, b.session.topology, b.session.runtime, b.session.env.Now())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	ui.PrintPlan(&ui.Stream{Writer: &out}, p)
	return out.Bytes(), nil
}

func (b *bundle) state(ctx context.Context, c *topology.Component) ([]byte, error) {
	if b.unconnected != nil {
		return nil, b.unconnected
	}
	s, err := b.session.runtime.State(ctx, c)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(s)
}

// events lists the events of the namespace on a cluster.
func (b *bundle) events(ctx context.Context, on topology.Cluster) ([]byte, error) {
	if b.unconnected != nil {
		return nil, b.unconnected
	}
	all, err := b.session.runtime.Find(ctx, plan.Ref{
		Cluster: on.Name, Namespace: on.Namespace, GroupVersionKind: kind.Event.GroupVersionKind,
	}, "")
	if err != nil {
		return nil, err
	}
	field := func(e unstructured.Unstructured, path ...string) string {
		v, _, _ := unstructured.NestedFieldNoCopy(e.Object, path...)
		if v == nil {
			return "-"
		}
		return firstLine(fmt.Sprint(v))
	}
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{
			field(e, "lastTimestamp"), field(e, "count"), field(e, "type"), field(e, "reason"),
			field(e, "involvedObject", "kind") + "/" + field(e, "involvedObject", "name"), field(e, "message"),
		})
	}
	var out bytes.Buffer
	ui.Table(&ui.Stream{Writer: &out}, []string{"LAST", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"}, rows...)
	return out.Bytes(), nil
}

// pods describes the pods of a component, without the parts that can hold secrets: arguments, variables, annotations.
func (b *bundle) pods(ctx context.Context, c *topology.Component) ([]byte, error) {
	if b.unconnected != nil {
		return nil, b.unconnected
	}
	all, err := b.session.runtime.Find(ctx, plan.Ref{
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

// contents lists the files of the bundle, those that are not complete, and what was left out.
func (b *bundle) contents() []byte {
	var out bytes.Buffer
	b.table(&ui.Stream{Writer: &out})
	return out.Bytes()
}

func (b *bundle) table(out *ui.Stream) {
	var rows [][]string
	for _, f := range b.files {
		state := "complete"
		if f.err != nil {
			state = "error: " + string(b.secrets.Text([]byte(firstLine(f.err.Error()))))
		}
		rows = append(rows, []string{f.name, f.about, state})
	}
	ui.Table(out, []string{"FILE", "CONTENT", "STATE"}, rows...)
	fmt.Fprintf(out, "\nLeft out:\n")
	for _, line := range leftOut() {
		fmt.Fprintf(out, "  %s\n", line)
	}
}

func (b *bundle) print(file string) {
	b.table(b.session.env.Streams.Out)
	fmt.Fprintf(b.session.env.Streams.Err, "\n%s written, readable only by you. Names, addresses and messages are "+
		"in it: look at it before you give it to others.\n", file)
}
