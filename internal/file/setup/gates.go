package setup

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// gateAllAlpha enables all gates of alpha features that are not set.
const gateAllAlpha = "AllAlpha"

// featureGates checks the feature gates of kcp. Certificates and rights depend on some, so only spec.featureGates may
// set those.
func (v *validator) featureGates() {
	gates, at := v.setup.Spec.FeatureGates, field.NewPath("spec", "featureGates")
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		v.gate(at.Key(name), name)
	}
	if _, set := gates[v1alpha1.GateWorkspaceMounts]; gates[gateAllAlpha] && !set {
		v.required(at.Key(v1alpha1.GateWorkspaceMounts), "%s includes it: set it to true or false", gateAllAlpha)
	}
	v.gateArgs(field.NewPath("spec", "defaults"), v.setup.Spec.Defaults.ExtraArgs)
	for _, p := range v.parts {
		if p.kind.IsShard() || p.kind == topology.FrontProxy {
			v.gateArgs(p.path, p.ExtraArgs)
		}
		if p.kind.IsShard() && gates[v1alpha1.GateWorkspaceMounts] {
			v.unexposed(p)
		}
	}
}

// gate requires a feature gate of the release. Images of others may have further ones.
func (v *validator) gate(p *field.Path, name string) {
	image, known := v.setup.Spec.Image, release.Gates(v.setup.Spec.Version)
	own := image.Repository != defaultRepository || image.Digest != "" || image.Tag != ""
	switch {
	case !v.matches(`[A-Z][A-Za-z0-9]*`, name), known != nil && !own && !slices.Contains(known, name):
		if known == nil {
			known = release.Gates(release.Newest)
		}
		detail := "feature gates of kcp " + v.setup.Spec.Version + ": " + strings.Join(known, ", ")
		if near := Nearest(known, name); near != "" {
			detail = "did you mean " + near + "? " + detail
		}
		v.errs = append(v.errs, &field.Error{Type: field.ErrorTypeNotSupported, Field: p.String(), BadValue: name, Detail: detail})
	}
}

// gateArgs refuses feature gates in extra arguments, which would replace the gates of the setup file or enable mounts.
func (v *validator) gateArgs(p *field.Path, args []string) {
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, "--feature-gates=")
		switch at := p.Child("extraArgs").Index(i); {
		case !ok:
		case strings.Contains(value, v1alpha1.GateWorkspaceMounts) || strings.Contains(value, gateAllAlpha):
			v.forbidden(at, "set spec.featureGates instead: mounts need certificates, "+
				"and shards that only their cluster reaches")
		case len(v.setup.Spec.FeatureGates) > 0:
			v.forbidden(at, "it replaces spec.featureGates: set all feature gates there")
		}
	}
}

// unexposed requires that only clients on its cluster reach a shard.
func (v *validator) unexposed(p part) {
	for _, at := range p.openings(v.setup) {
		v.forbidden(at, "workspace mounts are enabled (spec.featureGates), so only its own cluster may reach a shard")
	}
}

// trust requires the authority of a front-proxy's own certificate where clients use one bundle for it and for servers
// of the setup.
func (v *validator) trust() {
	proxies := v.setup.Spec.FrontProxies
	unknown := func(f v1alpha1.FrontProxy) bool { return f.Serving != nil && f.Serving.CA == "" }
	if len(v.errs) > 0 || !slices.ContainsFunc(proxies, unknown) {
		return
	}
	for _, m := range topology.Build(v.setup).Mistrusted() {
		i := slices.IndexFunc(proxies, func(f v1alpha1.FrontProxy) bool {
			return topology.IDOf(topology.FrontProxy, f.Name) == m.Server.Component
		})
		v.unplaced(field.NewPath("spec", "frontProxies").Index(i).Child("serving", "ca"),
			"%s dials %s and also %s at %s with the same kubeconfig, so it needs a bundle, and clients with a bundle "+
				"do not use the authorities of their system: set the root certificate of the chain",
			m.Client, m.Server, m.Other.Component, cmp.Or(m.Other.URL, m.Other.Host))
	}
}
