package cmd

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// rootArg names an object of a user in a workspace.
type rootArg struct{ kind, name, workspace, namespace string }

func (o *rootArg) add(f *pflag.FlagSet) {
	f.StringVarP(&o.workspace, "workspace", "w", "", "path of the workspace, such as root:team")
	f.StringVar(&o.namespace, "in", metav1.NamespaceDefault, "namespace of the object in the workspace")
	requireFlag(f, "workspace", "in")
}

// complete reads the argument, and requires the workspace.
func (o *rootArg) complete(arg string) error {
	var ok bool
	o.kind, o.name, ok = strings.Cut(arg, "/")
	switch {
	case !ok || o.kind == "" || o.name == "" || strings.Contains(o.name, "/"):
		return clierr.New(clierr.BadInput, "use KIND/NAME, such as deployment/web", "%q is not an object", arg)
	case o.workspace == "":
		return clierr.New(clierr.BadInput, "add -w WORKSPACE, such as -w root:team", "--workspace is required")
	}
	return nil
}

func (o *rootArg) rootName() compute.RootName {
	return compute.RootName{Kind: o.kind, Name: o.name, Workspace: o.workspace, Namespace: o.namespace}
}

// withKinds adds to the error about an unknown kind the kinds of workloads.
func (o *rootArg) withKinds(err error) error {
	if unknown, ok := errors.AsType[*compute.UnknownKindError](err); ok {
		return unknownName("kind", o.kind, unknown.Known)
	}
	return err
}

func (o *rootArg) read(ctx context.Context, w *compute.Workspace) (*compute.Root, error) {
	root, err := w.Root(ctx, o.rootName())
	return root, o.withKinds(err)
}
