package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// testbed is the environment of every verb.
type testbed struct {
	cache  string // directory of binaries and image archives
	stdout io.Writer
	log    *progress
}

// options are the flags and arguments of a verb.
type options struct {
	node, version, to string
	groups            []string
	args              []string
}

// verb is a command of the program.
type verb struct {
	name, usage, does string
	run               func(context.Context, *testbed, *options) error
}

func verbs() []verb {
	return []verb{
		{"up", "[--node a|b|c]", "build what is missing, start what does not run, and wait until the node is ready", runUp},
		{"down", "[--node a|b|c|all]", "stop the node and remove everything except the cache", runDown},
		{"status", "", "show the processes of the nodes", runStatus},
		{"kubeconfig", "[--node a|b|c]", "print the path of the administrator's kubeconfig", runKubeconfig},
		{"user-kubeconfig", "NAME [--group G]... [--node a|b|c]", "print the path of a kubeconfig for a user without rights", runUserKubeconfig},
		{"kcp-bin-dir", "[--version v0.32.3]", "build kcp if necessary, and print the directory of its binaries", runKcpBinDir},
		{"agent-bin-dir", "", "build the agent of service clusters if necessary, and print the directory of its binary", runAgentBinDir},
		{"image", "SET [--node a|b|c]", "build a set if necessary, and give its image to a running node", runImage},
		{"workload-images", "KCPCTL [--node a|b|c]", "give the image of a binary of kcpctl, and those of a small HTTP server, to a running node", runWorkloadImages},
		{"stop", "PROCESS [--node a|b|c]", "stop a process of a node, such as kube-apiserver; up starts it again", runStop},
		{"bin-dir", "[BINARY...]", "build Kubernetes and etcd if necessary, and print the directory of their binaries", runBinDir},
		{"build", "[SET...]", "build sets of binaries (default: all that short tests need)", runBuild},
		{"packages", "[PACKAGE...]", "install the Debian packages that a node needs, or others", runPackages},
		{"network-policies", "on|off [--node a|b|c]", "make a running node enforce NetworkPolicies, or no longer", runNetworkPolicies},
		{"link", "down|up [--node b] [--to nodes|machine]", "cut the links between the nodes, or between a node and the machine, or restore all links", runLink},
		{"provision", "[--node a|b|c]", "provision storage and load balancers; up starts this in the background", runProvision},
	}
}

// run runs the verb in args and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || strings.Trim(args[0], "-") == "help" || args[0] == "-h" {
		usage(stderr)
		return 2
	}
	for _, v := range verbs() {
		if v.name != args[0] {
			continue
		}
		err := v.start(ctx, args[1:], stdout, stderr)
		switch {
		case err == nil || errors.Is(err, flag.ErrHelp):
			return 0
		default:
			fmt.Fprintf(stderr, "testbed %s: %v\n", v.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "testbed: unknown verb %q\n", args[0])
	usage(stderr)
	return 2
}

func (v verb) start(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := v.parse(args, stderr)
	if err != nil {
		return err
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache directory: %w", err)
	}
	t := &testbed{cache: filepath.Join(caches, "kcpctl", "testbed"), stdout: stdout, log: newProgress(stderr)}
	return v.run(ctx, t, o)
}

// parse accepts flags before, between and after the arguments.
func (v verb) parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet(v.name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { fmt.Fprintf(stderr, "testbed %s %s: %s\n", v.name, v.usage, v.does) }
	if strings.Contains(v.usage, "--node") {
		f.StringVar(&o.node, "node", "a", "the node")
	}
	if strings.Contains(v.usage, "--version") {
		f.StringVar(&o.version, "version", "v0.32.3", "the release of kcp")
	}
	if strings.Contains(v.usage, "--to") {
		f.StringVar(&o.to, "to", toNodes, "the other end of the link")
	}
	if strings.Contains(v.usage, "--group") {
		f.Func("group", "a group of the user", func(s string) error { o.groups = append(o.groups, s); return nil })
	}
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return o, nil
		}
		o.args, args = append(o.args, f.Arg(0)), f.Args()[1:]
	}
}

func usage(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "usage: go run ./test/testbed VERB")
	for _, v := range verbs() {
		fmt.Fprintf(t, "  %s %s\t%s\n", v.name, v.usage, v.does)
	}
	t.Flush() //nolint:errcheck // best effort
}
