package cmd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/pki"
)

// owner is the installation whose entries a kubeconfig has.
func (s *session) owner(state *pki.State) kubeconfig.Owner {
	return kubeconfig.Owner{Setup: s.Topology.Name, Installation: state.Installation.ID}
}

// mergeInto merges the kubeconfig into the user's own.
func (o *kubeconfigOptions) mergeInto(ctx context.Context, owner kubeconfig.Owner, content []byte) error {
	path := o.userKubeconfig()
	if path == "" {
		return clierr.New(clierr.Failed, "set KUBECONFIG or HOME, or write a file with -o", "there is no kubeconfig to merge into")
	}
	name, err := kubeconfig.Merge(ctx, path, content, kubeconfig.MergeOptions{
		Owner: owner, ContextName: cmp.Or(o.contextName, owner.Setup), Use: o.use,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Streams.Err, "merged into %s. Use it with: kubectl --context %s get workspaces\n", path, quote(name))
	return nil
}

// userKubeconfig is the file that kubectl writes to: the first of $KUBECONFIG, or ~/.kube/config. It is empty without either.
func (e *Env) userKubeconfig() string {
	for _, path := range filepath.SplitList(e.Getenv("KUBECONFIG")) {
		if path != "" {
			return path
		}
	}
	if home := e.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".kube", "config")
	}
	return ""
}
