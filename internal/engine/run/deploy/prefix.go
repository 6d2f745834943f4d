package deploy

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// etcdPatience is how long external etcds may take to answer. Most can only be reached from the pods.
const etcdPatience = 2 * time.Second

// prefix is the place of a component in an external etcd that other installations may use, too.
type prefix struct {
	component *topology.Component
	// path begins all keys. The prefix of a cache server is fixed (kcp: cmd/cache-server).
	path string
	// recorded means that the record has it, owner is the installation that the etcd names, and asked that the etcd
	// answered.
	recorded, asked bool
	owner           string
}

// prefixes returns the prefixes of the components of the run.
func (g *guard) prefixes() []*prefix {
	var out []*prefix
	for _, c := range g.Topology.Components {
		d, ok := g.data[c.ID()]
		where, external := strings.CutPrefix(d.Etcd, "external ")
		if !ok || !external || c.Storage == nil || !g.scope().Includes(c.ID()) {
			continue
		}
		was, recorded := g.before.Data[c.ID()]
		_, path, _ := strings.Cut(where, " below ")
		out = append(out, &prefix{component: c, path: cmp.Or(path, "/cache"), recorded: recorded && was.Etcd == d.Etcd})
	}
	return out
}

// ownPrefixes refuses to share a prefix of an external etcd with another installation. It reads the owners from the
// etcds that this machine reaches. A prefix whose owner is not known is accepted if the record has it, if it contains
// the ID of the installation, or if the component takes over from another one that runs in the same place.
func (g *guard) ownPrefixes(ctx context.Context) error {
	all := g.prefixes()
	g.askOwners(ctx, all)
	var errs []error
	for _, x := range all {
		if err := g.ownPrefix(x); err != nil && !g.mayLose(x.component.ID()) {
			errs = append(errs, err)
		}
	}
	g.res.claims = slices.DeleteFunc(all, func(x *prefix) bool { return !x.asked })
	return errors.Join(errs...)
}

// askOwners reads the owners of prefixes from the etcds. An owner that no etcd returns in time is not known.
func (g *guard) askOwners(ctx context.Context, all []*prefix) {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	_ = parallel.Each(ctx, all, func(ctx context.Context, x *prefix) error {
		x.ask(ctx, g.Up)
		return nil
	})
}

func (g *guard) ownPrefix(x *prefix) error {
	id, own := x.component.ID(), g.desired.PKI.State.Installation.ID
	allow := fmt.Sprintf("if the keys below it are meant to belong to this installation, pass %s",
		risk.DataChange.Of(string(id)))
	switch {
	case x.owner != "" && x.owner != own && x.owner != g.known.Installation:
		return clierr.New(clierr.Failed,
			"omit the prefix, so that it contains the ID of the installation, or choose another one; "+allow,
			"%s uses %s in an external etcd, which belongs to installation %s, and this is %s", id,
			x.path, x.owner, own)
	case x.asked, x.recorded, strings.Contains(x.path+"/", "/"+own+"/"), takesOver(x.component, g.res.Plan):
		return nil
	}
	return clierr.New(clierr.Failed, "omit the prefix, so that it contains the ID of the installation; "+allow,
		"%s is not in the record of the installation, and uses %s in an external etcd that kcpctl cannot ask for its owner: "+
			"another installation may write there", id, x.path)
}

// takesOver reports whether a component gets a Service of another owner, which runs in the same place.
func takesOver(c *topology.Component, pl *plan.Plan) bool {
	return slices.ContainsFunc(pl.Items, func(it plan.Item) bool {
		return it.Component == c.ID() && it.Kind == "Service" && it.Live != nil && slices.Contains(c.Aliases, it.Name)
	})
}

// ask reads the owner of the prefix from the etcd.
func (x *prefix) ask(ctx context.Context, u *Up) {
	_ = x.with(ctx, u, func(ctx context.Context, client *etcd.Client) (err error) {
		x.owner, err = client.Owner(ctx, x.path)
		x.asked = err == nil
		return err
	})
}

// with calls do with a client of the first member that this machine reaches.
func (x *prefix) with(ctx context.Context, u *Up, do func(context.Context, *etcd.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	pair, ca, err := x.credentials(ctx, u)
	if err != nil {
		return err
	}
	network := u.Network
	if network == nil {
		network = &check.System{}
	}
	var last error = errors.New("no endpoint with https")
	for _, server := range x.component.Storage.Servers {
		at, err := url.Parse(server)
		if err != nil || at.Scheme != "https" { // without a certificate, this may be another etcd than that of the pods
			continue
		}
		client, err := etcd.New(etcd.Options{Host: at.Host, CA: ca, Pair: pair,
			DialTLS: func(ctx context.Context, address string, c *tls.Config) (net.Conn, error) {
				conn, err := network.DialTLS(ctx, address, c)
				if err != nil {
					return nil, err
				}
				return conn, nil
			}})
		if err != nil {
			return err
		}
		last = do(ctx, client)
		client.Close()
		if last == nil {
			return nil
		}
	}
	return last
}

// credentials reads the client certificate of the component for its etcd.
func (x *prefix) credentials(ctx context.Context, u *Up) (pair pki.Pair, ca []byte, err error) {
	c := x.component
	if c.Storage.TLSSecret == "" {
		return pair, nil, errors.New("no client certificate")
	}
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	secret, err := u.Runtime.Read(ctx, c, kind, c.Cluster.Namespace, c.Storage.TLSSecret)
	if err == nil && secret == nil {
		err = errors.New("no Secret")
	}
	if err != nil {
		return pair, nil, err
	}
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	for key, into := range map[string]*[]byte{"ca.crt": &ca, "tls.crt": &pair.Cert, "tls.key": &pair.Key} {
		raw, errDecode := base64.StdEncoding.DecodeString(data[key])
		err = errors.Join(err, errDecode)
		*into = raw
	}
	return pair, ca, err
}

// claimPrefixes makes the installation the owner of the prefixes of its components, before anything writes below them.
func (u *Up) claimPrefixes(ctx context.Context, res *Result) error {
	own := res.PKI.State.Installation.ID
	for _, x := range res.claims {
		if x.owner == own {
			continue
		}
		err := x.with(ctx, u, func(ctx context.Context, client *etcd.Client) error {
			if x.owner != "" {
				return client.TakeOver(ctx, x.path, own)
			}
			owner, err := client.Claim(ctx, x.path, own)
			if err == nil && owner != own {
				err = clierr.New(clierr.Conflict, "rerun the command",
					"installation %s has claimed it meanwhile", owner)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: claim its prefix in the external etcd: %w", x.component.ID(), err)
		}
	}
	return nil
}
