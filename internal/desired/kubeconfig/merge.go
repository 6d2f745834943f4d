package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// MergeOptions configure Merge.
type MergeOptions struct {
	// Owner is the installation that the entries belong to.
	Owner
	// ContextName is the new name of the current context of the merged kubeconfig, and the prefix of the others, such
	// as <ContextName>-base. Default: all contexts are named <Setup>-<context>.
	ContextName string
	// Use makes it the current context of the file. Otherwise the current context of the file does not change.
	Use bool
}

// Merge adds the entries of a kubeconfig to the file at path and replaces the entries of the same installation. It does
// not change other entries. It fails without writing anything if an entry of the same name belongs to another owner. If
// an entry has no installation ID, it belongs to this installation if it has the same host and shares a CA. Merge
// returns the new name of the kubeconfig's current context.
func Merge(ctx context.Context, path string, data []byte, o MergeOptions) (string, error) {
	add, err := clientcmd.Load(data)
	if err != nil {
		return "", errors.New("merge: invalid kubeconfig") // the cause could contain the key
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

// RemoveOptions configure Remove.
type RemoveOptions struct {
	Owner
	// ServerCA are the PEM certificates of the installation's server CA. They identify entries without an installation
	// ID.
	ServerCA []byte
}

// Remove removes the entries of an installation from the file at path, and no others. It unsets the current context if
// that is one of them. It returns the names of the removed contexts: none if the file does not exist.
func Remove(ctx context.Context, path string, o RemoveOptions) ([]string, error) {
	if _, err := os.Stat(path); o.Setup == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var gone []string
	err := edit(ctx, path, func(cfg *api.Config) error {
		for _, it := range o.owned(cfg) {
			switch it.kind {
			case kindCluster:
				delete(cfg.Clusters, it.name)
			case kindUser:
				delete(cfg.AuthInfos, it.name)
			case kindContext:
				delete(cfg.Contexts, it.name)
				gone = append(gone, it.name)
			}
		}
		if slices.Contains(gone, cfg.CurrentContext) {
			cfg.CurrentContext = ""
		}
		return nil
	})
	return gone, err
}

// Owned returns the entries that Remove would remove, such as `context "demo"`.
func Owned(path string, o RemoveOptions) ([]string, error) {
	cfg, err := load(path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, it := range o.owned(cfg) {
		out = append(out, it.String())
	}
	return out, nil
}

// owned returns the entries of the installation.
func (o RemoveOptions) owned(cfg *api.Config) []item {
	ours := func(c *api.Cluster) bool { return shares(c.CertificateAuthorityData, o.ServerCA) }
	return slices.DeleteFunc(items(cfg), func(it item) bool { return !o.owns(it.ext, it.clusters, ours) })
}

// rename returns the kubeconfig with the names and the owner that its entries get in the user's file.
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

// foreign fails if the merge would replace entries of other owners.
func (o MergeOptions) foreign(have, add *api.Config) error {
	added := map[string]item{}
	for _, it := range items(add) {
		added[it.String()] = it
	}
	var others, twins []string
	var twin string
	for _, it := range items(have) {
		mine, replaced := added[it.String()]
		switch {
		case !replaced || o.owns(it.ext, it.clusters, mine.sharesServer):
		case ownerOf(it.ext).Setup != o.Setup:
			others = append(others, it.String())
		default:
			twins = append(twins, it.String())
			twin = cmp.Or(twin, describe(ownerOf(it.ext), it.clusters))
		}
	}
	const hint = "choose other names with --context-name"
	switch {
	case len(others) > 0:
		return clierr.New(clierr.Conflict, hint, "entries with other owners exist: %s",
			strings.Join(append(others, twins...), ", "))
	case len(twins) > 0:
		return clierr.New(clierr.Conflict, hint+", or delete the entries if that installation no longer exists",
			"entries of another installation of setup %q exist: %s. They belong to %s, and this is %s",
			o.Setup, strings.Join(twins, ", "), twin, describe(o.Owner, items(add)[0].clusters))
	}
	return nil
}

// describe describes an installation for messages.
func describe(o Owner, clusters []*api.Cluster) string {
	out := "an installation without an ID"
	if o.Installation != "" {
		out = "installation " + o.Installation
	}
	if len(clusters) > 0 {
		out += " at " + clusters[0].Server
	}
	return out
}
