// Package kcptest starts a kcp for tests, as processes of this machine, and removes it when the test ends. It runs the
// command kcpctl, and imports nothing of it.
//
//	func TestAPI(t *testing.T) {
//		kcp := kcptest.Start(t)
//		client, err := dynamic.NewForConfig(kcp.Config(t, "root"))
//		…
//	}
//
// A test needs kcpctl in $PATH or as a tool of the module (go get -tool github.com/kcpctl/kcpctl), and kcp's binaries,
// which kcpctl downloads once into the cache directory of the user.
package kcptest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options describe a kcp. The zero value is one root shard with a front-proxy.
type Options struct {
	// Shards are the names of shards beside the root shard.
	Shards []string
	// Version is the release of kcp, such as v0.32.3. Default: the one of kcpctl.
	Version string
	// BinDir is the directory of kcp's binaries. Default: $PATH, else kcpctl downloads them.
	BinDir string
	// Kcpctl is the command to run. Default: kcpctl in $PATH, else the tool of the module.
	Kcpctl string
}

// KCP is a kcp that runs until its test ends. Several can run beside each other.
type KCP struct {
	// Kubeconfig is the path of a kubeconfig for an administrator, with the front-proxy as its server.
	Kubeconfig string
}

// stopLimit is how long kcpctl has to stop the processes when a test has ended.
const stopLimit = 2 * time.Minute

// Start starts a kcp with default options, and removes it when the test ends. It fails the test if kcp does not start.
func Start(t testing.TB) *KCP {
	t.Helper()
	return StartWith(t, Options{})
}

// StartWith starts a kcp, and removes it when the test ends. It fails the test if kcp does not start.
func StartWith(t testing.TB, o Options) *KCP {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kcp.yaml")
	if err := os.WriteFile(file, o.setup(), 0o600); err != nil {
		t.Fatal(err)
	}
	kcpctl, err := o.kcpctl()
	if err != nil {
		t.Fatal(err)
	}
	// The command prints the path of the kubeconfig, and ends with its standard input: when this process ends, whatever
	// the reason, kcpctl removes everything.
	args := []string{"up", "--local", "--ephemeral", "--skip-canary", "--plain", "-f", file}
	if o.BinDir != "" {
		args = append(args, "--kcp-bin-dir", o.BinDir)
	}
	c := exec.Command(kcpctl, append(args, "--", "sh", "-c", `echo "$KUBECONFIG" && exec cat >/dev/null`)...)
	output := &bytes.Buffer{}
	c.Stderr = output
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c, stdin, output) })
	path, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = c.Wait() // then all of its output is here
		t.Fatalf("kcp has not started:\n%s", output)
	}
	return &KCP{Kubeconfig: strings.TrimSpace(path)}
}

// stop ends the command of kcpctl, and waits until kcpctl has removed the kcp.
func stop(t testing.TB, c *exec.Cmd, stdin io.Closer, output *bytes.Buffer) {
	_ = stdin.Close() // it may have ended
	timer := time.AfterFunc(stopLimit, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	if err := c.Wait(); err != nil && !t.Failed() {
		t.Errorf("kcp was not removed: %v\n%s", err, output)
	}
}

// setup returns the setup file. Its name differs from those of all other tests.
func (o Options) setup() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata:\n  name: test-%s\nspec:\n", strings.ToLower(rand.Text()[:10]))
	if o.Version != "" {
		fmt.Fprintf(&b, "  version: %q\n", o.Version)
	}
	b.WriteString("  shards:\n")
	for _, name := range o.Shards {
		fmt.Fprintf(&b, "  - name: %q\n", name)
	}
	return b.Bytes()
}

// kcpctl returns the path of the command.
func (o Options) kcpctl() (string, error) {
	if o.Kcpctl != "" {
		return o.Kcpctl, nil
	}
	if path, err := exec.LookPath("kcpctl"); err == nil {
		return path, nil
	}
	out, err := exec.Command("go", "tool", "-n", "kcpctl").Output()
	if err != nil {
		return "", fmt.Errorf("kcpctl is neither in $PATH nor a tool of the module: run go get -tool github.com/kcpctl/kcpctl")
	}
	return strings.TrimSpace(string(out)), nil
}

// Config returns the configuration of a client for an administrator in the workspace at a path, such as root:team-a.
func (k *KCP) Config(t testing.TB, workspace string) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/clusters/" + workspace
	c.Host = u.String()
	return c
}
