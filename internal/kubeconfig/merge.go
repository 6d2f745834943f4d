package kubeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// extension is the name under which the entries that kcpctl made in a kubeconfig say whose they are.
const extension = "kcpctl.dev"

// marker is what our extension holds.
type marker struct {
	Setup string `json:"setup"`
}

// MergeOptions say how to merge a kubeconfig into a file.
type MergeOptions struct {
	// Setup is the name of the setup that the entries belong to.
	Setup string
	// ContextName is what the current context of the merged kubeconfig becomes; the others are called after it:
	// <ContextName>-base. Default: each is called <Setup>-<context>.
	ContextName string
	// Use makes it the current context. Otherwise that stays as it is, set or not.
	Use bool
}

// Merge adds the entries of a kubeconfig to the file at path, or replaces those of the same setup. Everything else in the
// file stays. Entries of the same name that are not of this setup are an error, and nothing is written. It returns the name
// of the context that was current in the merged kubeconfig.
func Merge(ctx context.Context, path string, data []byte, o MergeOptions) (string, error) {
	add, err := clientcmd.Load(data)
	if err != nil {
		return "", errors.New("merge: it is no kubeconfig") // the cause could quote the key
	}
	add = o.rename(add)
	err = edit(ctx, path, func(cfg *api.Config) error {
		if err := o.foreign(cfg, add); err != nil {
			return fmt.Errorf("merge into %s: %w", path, err)
		}
		maps.Copy(cfg.Clusters, add.Clusters)
		maps.Copy(cfg.AuthInfos, add.AuthInfos)
		maps.Copy(cfg.Contexts, add.Contexts)
		if o.Use {
			cfg.CurrentContext = add.CurrentContext
		}
		return nil
	})
	return add.CurrentContext, err
}

// Remove removes the entries of a setup from the file at path, and nothing else. A current context that goes with them is
// unset. It returns the names of the contexts that are gone; a file that does not exist has none.
func Remove(ctx context.Context, path, setup string) ([]string, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var gone []string
	err := edit(ctx, path, func(cfg *api.Config) error {
		for _, name := range slices.Sorted(maps.Keys(cfg.Contexts)) {
			if setupOf(cfg.Contexts[name].Extensions) == setup {
				gone = append(gone, name)
			}
		}
		maps.DeleteFunc(cfg.Contexts, func(_ string, c *api.Context) bool { return setupOf(c.Extensions) == setup })
		maps.DeleteFunc(cfg.Clusters, func(_ string, c *api.Cluster) bool { return setupOf(c.Extensions) == setup })
		maps.DeleteFunc(cfg.AuthInfos, func(_ string, a *api.AuthInfo) bool { return setupOf(a.Extensions) == setup })
		if slices.Contains(gone, cfg.CurrentContext) {
			cfg.CurrentContext = ""
		}
		return nil
	})
	return gone, err
}

// rename gives all entries the names and the marker that they get in the user's file.
func (o MergeOptions) rename(cfg *api.Config) *api.Config {
	prefix := o.Setup + "-"
	if o.ContextName != "" {
		prefix = o.ContextName + "-"
	}
	name := func(context string) string {
		if o.ContextName != "" && context == cfg.CurrentContext {
			return o.ContextName
		}
		return prefix + context
	}
	out := api.NewConfig()
	out.CurrentContext = name(cfg.CurrentContext)
	for n, c := range cfg.Clusters {
		c.Extensions = o.mark()
		out.Clusters[name(n)] = c
	}
	for n, a := range cfg.AuthInfos {
		a.Extensions = o.mark()
		out.AuthInfos[prefix+n] = a
	}
	for n, c := range cfg.Contexts {
		c.Extensions, c.Cluster, c.AuthInfo = o.mark(), name(c.Cluster), prefix+c.AuthInfo
		out.Contexts[name(n)] = c
	}
	return out
}

// foreign refuses entries that the merge would replace and that are not of the same setup.
func (o MergeOptions) foreign(have, add *api.Config) error {
	var names []string
	note := func(kind, name string, ext map[string]runtime.Object) {
		if setupOf(ext) != o.Setup {
			names = append(names, fmt.Sprintf("%s %q", kind, name))
		}
	}
	for n := range add.Clusters {
		if c, ok := have.Clusters[n]; ok {
			note("cluster", n, c.Extensions)
		}
	}
	for n := range add.AuthInfos {
		if a, ok := have.AuthInfos[n]; ok {
			note("user", n, a.Extensions)
		}
	}
	for n := range add.Contexts {
		if c, ok := have.Contexts[n]; ok {
			note("context", n, c.Extensions)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return clierr.New(clierr.Conflict, "choose other names with --context-name", "it has entries of others: %s", strings.Join(names, ", "))
}

func (o MergeOptions) mark() map[string]runtime.Object {
	raw, err := json.Marshal(marker{Setup: o.Setup})
	if err != nil {
		panic("encode a name: " + err.Error())
	}
	return map[string]runtime.Object{extension: &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}}
}

// setupOf returns the setup that an entry belongs to; none if kcpctl did not make it.
func setupOf(ext map[string]runtime.Object) string {
	u, ok := ext[extension].(*runtime.Unknown)
	if !ok {
		return ""
	}
	var m marker
	if json.Unmarshal(u.Raw, &m) != nil {
		return ""
	}
	return m.Setup
}
