package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/test/image"
)

// runImage builds a set if necessary, and imports its image into a running node.
func runImage(ctx context.Context, t *testbed, o *options) error {
	n, err := runningNode(o.node)
	if err != nil {
		return err
	}
	if len(o.args) != 1 {
		return fmt.Errorf("name one set, such as %s", agentSet().name)
	}
	i := slices.IndexFunc(images(), func(i setImage) bool { return i.set.name == o.args[0] })
	if i < 0 {
		return fmt.Errorf("no image has the set %q", o.args[0])
	}
	return t.provide(ctx, n, images()[i])
}

// runWorkloadImages imports the images of transparent multi-cluster into a running node: that of a given kcpctl, and
// those of workloads.
func runWorkloadImages(ctx context.Context, t *testbed, o *options) error {
	n, err := runningNode(o.node)
	if err != nil {
		return err
	}
	i := image.Kcpctl(kcpctlImage, runtime.GOARCH)
	if len(o.args) != 1 || filepath.Base(o.args[0]) != i.Binaries[0] {
		return fmt.Errorf("name one binary of kcpctl, such as bin/%s", i.Binaries[0])
	}
	if err := t.provide(ctx, n, webImages()...); err != nil {
		return err
	}
	return t.replaceImage(ctx, n, i, filepath.Dir(o.args[0]))
}

// runningNode returns the node with a name, which has to run.
func runningNode(name string) (node, error) {
	n, err := oneNode(name)
	if err != nil {
		return node{}, err
	}
	if !exists(n.kubeconfig("admin")) {
		return node{}, fmt.Errorf("node %s is not up", n.name)
	}
	return n, nil
}

// provide builds what images need, and imports them into a node.
func (t *testbed) provide(ctx context.Context, n node, images ...setImage) error {
	for _, i := range images {
		if err := t.build(ctx, i.set); err != nil {
			return err
		}
		did, err := t.importImage(ctx, n, i)
		if err != nil {
			return err
		}
		t.log.note("%s: image %s %s", n.name, i.Ref, did)
	}
	return nil
}

// importImage imports the image into containerd unless it exists.
func (t *testbed) importImage(ctx context.Context, n node, i setImage) (string, error) {
	has, err := t.ctr(ctx, n, "images", "list", "--quiet", "name=="+i.Ref)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(has) == i.Ref {
		return "exists", nil
	}
	file, err := t.archive(ctx, i)
	if err != nil {
		return "", err
	}
	return "imported", t.load(ctx, n, file)
}

// replaceImage imports an image whose binaries change under the same name. Its containers keep what they have.
func (t *testbed) replaceImage(ctx context.Context, n node, i image.Image, binDir string) error {
	file := t.imageFile(i)
	unlock, err := t.lock(ctx, filepath.Base(file))
	if err != nil {
		return err
	}
	defer unlock()
	if err := i.Write(file, binDir); err != nil {
		return err
	}
	if err := t.load(ctx, n, file); err != nil {
		return err
	}
	t.log.note("%s: image %s imported", n.name, i.Ref)
	return nil
}

// load imports an archive into containerd.
func (t *testbed) load(ctx context.Context, n node, file string) error {
	_, err := t.ctr(ctx, n, "images", "import", "--local", "--discard-unpacked-layers", file)
	return err
}

// ctr runs the client of containerd.
func (t *testbed) ctr(ctx context.Context, n node, args ...string) (string, error) {
	bound := append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)
	return command{name: filepath.Join(t.binDir(containerdSet()), "ctr"), args: bound}.run(ctx)
}
