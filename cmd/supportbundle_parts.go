package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/bundle"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// bundleRun collects a bundle.
type bundleRun struct {
	*bundle.Bundle
	session *session
	// input is the setup file, if it is stdin, and args are the flags that lead to the setup.
	input string
	args  []string
	tail  int64
}

// parts are the files of the bundle.
func (b *bundleRun) parts() []bundle.Part {
	out := []bundle.Part{
		{File: "version.txt", About: "the version of kcpctl", Text: b.command("version")},
		{File: "exit-codes.txt", About: "what the exit codes mean", Text: b.command("help", "exit-codes")},
		{File: "setup.yaml", About: "the setup file, with defaults", Text: b.Setup},
		{File: "applied.yaml", About: "the setup that was applied last", Text: b.Applied},
		{File: "status.txt", About: "kcpctl status", Text: b.command("status", "--all")},
		{File: "status.yaml", About: "kcpctl status -o yaml", Text: b.command("status", "--output=yaml")},
		{File: "check.txt", About: "kcpctl check", Text: b.command("check", "--output=wide")},
		{File: "certificates.txt", About: "kcpctl certs list", Text: b.command("certs", "list", "--all")},
		{File: "history.txt", About: "kcpctl history", Text: b.command("history")},
		{File: "diff.txt", About: "which objects kcpctl up would change", Text: b.diff},
	}
	if b.session.layout == nil {
		for _, c := range b.session.topology.Clusters {
			out = append(out, bundle.Part{
				File: "events-" + c.Name + ".txt", About: "events of the namespace on cluster " + c.Name,
				Text: func(ctx context.Context) ([]byte, error) { return b.events(ctx, c) },
			})
		}
	}
	for _, c := range b.session.topology.Running() {
		out = append(out, b.partsOf(c)...)
	}
	return out
}

// partsOf are the files about a component.
func (b *bundleRun) partsOf(c *topology.Component) []bundle.Part {
	id := string(c.ID())
	dir := "components/" + strings.ReplaceAll(id, "/", "-") + "/"
	out := []bundle.Part{
		{File: dir + "state.yaml", About: "the state of " + id, Text: b.State(c)},
		{File: dir + "log.txt", About: "its last lines", Text: b.command("logs", fmt.Sprintf("--tail=%d", b.tail), id)},
		{File: dir + "previous-log.txt", About: "those before its last restart", Text: b.PreviousLog(c, b.tail)},
	}
	if b.session.layout == nil {
		out = append(out, bundle.Part{File: dir + "pods.yaml", About: "its pods", Text: b.Pods(c)})
	}
	return out
}

// command returns the output of a command of kcpctl, with its exit code if it is not 0.
func (b *bundleRun) command(args ...string) func(context.Context) ([]byte, error) {
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

// diff lists the objects that up would change, without their content.
func (b *bundleRun) diff(ctx context.Context) ([]byte, error) {
	if b.Unconnected != nil {
		return nil, b.Unconnected
	}
	p, _, err := deploy.Compare(ctx, b.session.topology, b.session.runtime, b.session.env.Now())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	ui.PrintPlan(&ui.Stream{Writer: &out}, p)
	return out.Bytes(), nil
}

// events lists the events of the namespace on a cluster.
func (b *bundleRun) events(ctx context.Context, on topology.Cluster) ([]byte, error) {
	all, err := b.Events(ctx, on)
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

// contents lists the files of the bundle, those that are not complete, and what was left out.
func (b *bundleRun) contents() []byte {
	var out bytes.Buffer
	b.table(&ui.Stream{Writer: &out})
	return out.Bytes()
}

func (b *bundleRun) table(out *ui.Stream) {
	var rows [][]string
	for _, f := range b.Files {
		state := "complete"
		if f.Err != nil {
			state = "error: " + b.Text(firstLine(f.Err.Error()))
		}
		rows = append(rows, []string{f.Name, f.About, state})
	}
	ui.Table(out, []string{"FILE", "CONTENT", "STATE"}, rows...)
	fmt.Fprintf(out, "\nLeft out:\n")
	for _, line := range bundle.LeftOut() {
		fmt.Fprintf(out, "  %s\n", line)
	}
}

func (b *bundleRun) print(file string) {
	b.table(b.session.env.Streams.Out)
	fmt.Fprintf(b.session.env.Streams.Err, "\n%s written, readable only by you. Names, addresses and messages are "+
		"in it: look at it before you give it to others.\n", file)
}
