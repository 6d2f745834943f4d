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

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// MergeOptions say how to merge a kubeconfig into a file.
type MergeOptions struct {
	// Owner is what the entries belong to.
	Owner
	// ContextName is what the current context of the merged kubeconfig becomes; the others are called after it:
	// <ContextName>-base. Default: each is called <Setup>-<context>.
	ContextName string
	// Use makes it the current context. Otherwise that stays as it is, set or not.
	Use bool
}

// Merge adds the entries of a kubeconfig to the file at path, or replaces those of the same installation. Everything else in
// the file stays. Entries of the same name that are not of this installation are an error, and nothing is written. Where one of
// them has no ID, they are of the same installation if their servers are one host and share a certificate authority. It returns
// the name of the context that was current in the merged kubeconfig.
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

// RemoveOptions say whose entries to remove.
type RemoveOptions struct {
	Owner
	// ServerCA are the PEM certificates of the installation's server CA: they say whose entries are that have no ID.
	ServerCA []byte
}

// Remove removes the entries of an installation from the file at path, and nothing else. A current context that goes with them
// is unset. It returns the names of the contexts that are gone; a file that does not exist has none.
func Remove(ctx context.Context, path string, o RemoveOptions) ([]string, error) {
	if _, err := os.Stat(path); o.Setup == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var gone []string
	err := edit(ctx, path, func(cfg *api.Config) error {
		ours := func(c *api.Cluster) bool { return shares(c.CertificateAuthorityData, o.ServerCA) }
		for _, it := range items(cfg) {
			if !o.owns(it.ext, it.clusters, ours) {
				continue
			}
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

// foreign refuses entries that the merge would replace and that are not of the same installation.
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
		return clierr.New(clierr.Conflict, hint, "it has entries of others: %s", strings.Join(append(others, twins...), ", "))
	case len(twins) > 0:
		return clierr.New(clierr.Conflict, hint+", or delete them if that installation is gone",
			"it has entries of another installation of setup %q: %s; they are of %s, and this is %s",
			o.Setup, strings.Join(twins, ", "), twin, describe(o.Owner, items(add)[0].clusters))
	}
	return nil
}

// describe says which installation is meant.
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
