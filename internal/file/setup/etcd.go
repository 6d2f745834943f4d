package setup

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

type etcdFields struct{ *fields }

func (v *validator) etcds() {
	path := field.NewPath("spec", "etcd")
	v.etcd(path, v.setup.Spec.Etcd)
	if x := v.setup.Spec.Etcd.External; x != nil && x.Prefix != "" {
		v.forbidden(path.Child("external", "prefix"),
			"every shard needs its own prefix: set it in the shard, or use the default")
	}
	keys := map[string]string{}
	for _, p := range v.parts {
		if p.etcd == nil {
			continue
		}
		e, at := **p.etcd, p.path.Child("etcd")
		v.etcd(at, e)
		switch replicas := p.path.Child("replicas"); {
		case e.Embedded == nil || p.Replicas == 1:
		case p.Replicas.Managed():
			v.invalid(replicas, p.Replicas, "must be 1, because its etcd is embedded")
		default:
			v.forbidden(replicas, "must be 1 and not null, because its etcd is embedded")
		}
		if e.External != nil {
			v.prefix(at.Child("external", "prefix"), p, e.External, keys)
		}
		if p.kind == topology.CacheServer && e.Embedded == nil && !release.Of(p.release(v.setup.Spec)).CacheEtcd {
			v.forbidden(at, "must be embedded, because a cache server of kcp before v0.31.0 has no other etcd")
		}
	}
}

// etcd checks a single etcd, without comparing it with others.
func (v etcdFields) etcd(p *field.Path, e v1alpha1.Etcd) {
	given := 0
	for _, g := range []bool{e.Managed != nil, e.External != nil, e.Embedded != nil} {
		if g {
			given++
		}
	}
	if given != 1 {
		v.forbidden(p, "must have exactly one of managed, external and embedded, not %d", given)
	}
	if m := e.Managed; m != nil {
		v.managedEtcd(p.Child("managed"), m)
	}
	if x := e.External; x != nil {
		v.externalEtcd(p.Child("external"), x)
	}
	if m := e.Embedded; m != nil {
		v.storage(p.Child("embedded"), m.Storage, m.StorageClassName)
	}
}

func (v etcdFields) managedEtcd(p *field.Path, m *v1alpha1.ManagedEtcd) {
	if m.Replicas != nil && *m.Replicas != 1 && *m.Replicas != 3 {
		v.invalid(p.Child("replicas"), *m.Replicas, "must be 1 or 3")
	}
	v.imageReference(p.Child("image"), m.Image)
	v.storage(p, m.Storage, m.StorageClassName)
	v.etcdLimits(p, m)
	v.resources(p.Child("resources"), m.Resources)
	v.args(p, m.ExtraArgs, topology.Etcd)
}

// etcdLimits checks how large the data may become, and how long earlier revisions are kept.
func (v etcdFields) etcdLimits(p *field.Path, m *v1alpha1.ManagedEtcd) {
	if q := m.Quota; q != nil {
		if q.Sign() <= 0 {
			v.invalid(p.Child("quota"), q.String(), "must be greater than 0")
		} else if m.Storage != nil && !m.Ephemeral && q.Cmp(*m.Storage) >= 0 {
			v.invalid(p.Child("quota"), q.String(),
				"must be smaller than storage, %s, because the volume also has logs and snapshots", m.Storage)
		}
	}
	if m.AutoCompaction.Duration < 0 {
		v.invalid(p.Child("autoCompaction"), m.AutoCompaction.Duration.String(), "must be greater than 0")
	}
}

func (v etcdFields) externalEtcd(p *field.Path, x *v1alpha1.ExternalEtcd) {
	if len(x.Endpoints) == 0 {
		v.required(p.Child("endpoints"), "the URLs of the members")
		return
	}
	schemes := map[string]bool{}
	for i, e := range x.Endpoints {
		v.endpoint(p.Child("endpoints").Index(i), e)
		v.unique(p.Child("endpoints").Index(i), e)
		if scheme, _, _ := strings.Cut(e, "://"); scheme == "http" || scheme == "https" {
			schemes[scheme] = true
		}
	}
	switch {
	case len(schemes) > 1:
		v.invalid(p.Child("endpoints"), strings.Join(x.Endpoints, ", "), "must all be http or all be https")
	case schemes["https"] && x.TLSSecret == "":
		v.required(p.Child("tlsSecret"), "https endpoints need the name of a Secret with ca.crt, tls.crt and tls.key")
	case schemes["http"] && x.TLSSecret != "":
		v.forbidden(p.Child("tlsSecret"), "must not be set, because the endpoints are http")
	}
	if x.TLSSecret != "" {
		v.subdomain(p.Child("tlsSecret"), x.TLSSecret)
	}
}

// prefix checks that no two components write to the same keys of the same etcd.
func (v *validator) prefix(at *field.Path, p part, x *v1alpha1.ExternalEtcd, keys map[string]string) {
	prefix := x.Prefix
	if p.kind == topology.CacheServer {
		if prefix != "" {
			v.forbidden(at, "must not be set: the prefix of a cache server is always /cache, so two "+
				"setups need two etcds")
		}
		// kcp up to v0.32.3: pkg/cache/server/config.go.
		prefix = "/cache"
	} else if prefix == "" {
		return // defaults are unique
	} else if !v.matches(`(?:/[A-Za-z0-9._-]+)+`, prefix) {
		v.invalid(at, prefix, "must be a path such as /%s/%s", v.setup.Metadata.Name, p.id().ShortName())
		return
	}
	for _, e := range x.Endpoints {
		u, err := url.Parse(e)
		if err != nil {
			continue
		}
		key := u.Host + prefix
		if other, taken := keys[key]; taken {
			v.invalid(at, prefix, "%s uses this prefix in the same etcd", other)
			return
		}
		keys[key] = string(p.id())
	}
}
