package setup

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

const (
	labelFormat = "must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or " +
		"digit at both ends"
	subdomainFormat = "must be a DNS name: lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
)

// name requires a DNS label as the name of a list item.
func (v *fields) name(p *field.Path, name string) {
	if name == "" {
		v.required(p, "")
		return
	}
	v.label(p, name)
}

func (v *fields) label(p *field.Path, s string) {
	if len(validation.IsDNS1123Label(s)) > 0 {
		v.invalid(p, s, labelFormat)
	}
}

func (v *fields) subdomain(p *field.Path, s string) {
	if len(validation.IsDNS1123Subdomain(s)) > 0 {
		v.invalid(p, s, subdomainFormat)
	}
}

func (v *fields) port(p *field.Path, n int32) {
	if len(validation.IsValidPortNum(int(n))) > 0 {
		v.invalid(p, n, "must be between 1 and 65535")
	}
}

// release requires a supported kcp release. A release newer than the newest supported one is valid and gets the flags
// of that one (see File.Notes). It is also a tag of images, so that it has no build metadata: +corp1.
func (v *fields) release(p *field.Path, s string) {
	switch _, err := version.ParseSemantic(s); {
	case err != nil || !strings.HasPrefix(s, "v") || !v.matches(tagPattern, s):
		v.invalid(p, s, "must be a kcp release such as %s", release.Default)
	case release.Older(s, release.Oldest):
		v.invalid(p, s, "the oldest supported release is %s, the newest one %s", release.Oldest, release.Newest)
	}
}

// The parts of an image reference (github.com/distribution/reference: reference.go).
const (
	repositoryPattern = `(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*`
	tagPattern    = `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`
	digestPattern = `sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}`
)

func (v *fields) image(p *field.Path, i v1alpha1.Image) {
	if i.Repository != "" && !v.matches(repositoryPattern, i.Repository) {
		v.invalid(p.Child("repository"), i.Repository, "must be an image repository such as %s, without tag and digest",
			defaultRepository)
	}
	if i.Tag != "" {
		v.tag(p.Child("tag"), i.Tag)
	}
	if i.Digest != "" && !v.matches(digestPattern, i.Digest) {
		v.invalid(p.Child("digest"), i.Digest, "must be sha256: followed by 64 hexadecimal digits")
	}
	if i.PullPolicy != "" {
		oneOf(v, p.Child("pullPolicy"), i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	for n, s := range i.PullSecrets {
		v.subdomain(p.Child("pullSecrets").Index(n), s)
		v.unique(p.Child("pullSecrets").Index(n), s)
	}
}

// otherImage checks an image of another program than kcp, whose tag is not a release of kcp.
func (v *fields) otherImage(p *field.Path, i v1alpha1.Image) {
	if i.Tag != "" {
		v.isTag(p.Child("tag"), i.Tag)
		i.Tag = ""
	}
	v.image(p, i)
}

// tag requires an image tag. A tag that is a release selects the flags, so the release must be supported.
func (v *fields) tag(p *field.Path, tag string) {
	if _, err := version.ParseSemantic(tag); v.isTag(p, tag) && err == nil && strings.HasPrefix(tag, "v") {
		v.release(p, tag)
	}
}

func (v *fields) isTag(p *field.Path, tag string) bool {
	is := v.matches(tagPattern, tag)
	if !is {
		v.invalid(p, tag, "must be an image tag: at most 128 letters, digits, '_', '.' and '-'")
	}
	return is
}

func (v *fields) imageReference(p *field.Path, s string) {
	if !v.matches(repositoryPattern+`(?::`+tagPattern+`)?(?:@(?:`+digestPattern+`))?`, s) {
		v.invalid(p, s, "must be an image such as %s", EtcdImage)
	}
}

// sortedNames returns the names of resources in order, so that problems are in order too.
func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	var out []corev1.ResourceName
	for name := range list {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (v *fields) secretName(p *field.Path, name string) {
	if name == "" {
		v.required(p, "the name of a Secret")
		return
	}
	v.subdomain(p, name)
}
