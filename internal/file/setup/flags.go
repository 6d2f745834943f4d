package setup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// unknownFlag is an extra argument with a flag that its program does not have.
type unknownFlag struct {
	at      *field.Path
	message string
	// certain means that the flags of the image are known. Otherwise it may be another program, or another release.
	certain bool
}

// unknownFlags returns the extra arguments with which servers of kcp would exit at once: unknown flag.
func unknownFlags(s *v1alpha1.Setup) []unknownFlag {
	reported := map[string]bool{}
	var out []unknownFlag
	for _, p := range parts(s) {
		for _, args := range []struct {
			at   *field.Path
			args []string
		}{{field.NewPath("spec", "defaults"), s.Spec.Defaults.ExtraArgs}, {p.path, p.ExtraArgs}} {
			for i, arg := range args.args {
				at := args.at.Child("extraArgs").Index(i)
				found := p.unknownFlag(&s.Spec, arg)
				if found == nil || reported[at.String()] { // several components inherit the defaults
					continue
				}
				reported[at.String()] = true
				found.at = at
				out = append(out, *found)
			}
		}
	}
	return out
}

// shortFlag is the length of names for which no other flag is suggested: every short name is similar to them.
const shortFlag = 3

// unknownFlag returns what is wrong with an extra argument of a component, or nil.
func (p part) unknownFlag(spec *v1alpha1.Spec, arg string) *unknownFlag {
	flag, _, _ := strings.Cut(arg, "=")
	name, isFlag := strings.CutPrefix(flag, "--")
	version := cmp.Or(p.Image.Tag, spec.Image.Tag, spec.Version)
	if p.custom != nil {
		version = spec.Version
	}
	unknown, certain, known := release.UnknownFlag(p.kind.Program(), version, name)
	if !isFlag || !unknown || strings.ToLower(name) != name || strings.Contains(name, " ") {
		return nil // others are refused for their form
	}
	own := p.custom != nil || cmp.Or(p.Image.Repository, spec.Image.Repository) != defaultRepository ||
		cmp.Or(p.Image.Digest, spec.Image.Digest) != ""
	nearest := ""
	if len(name) > shortFlag {
		nearest = Nearest(known, name)
	}
	if own || !certain {
		if nearest == "" {
			return nil // it may have this flag
		}
		return &unknownFlag{message: fmt.Sprintf("%s %s has no flag --%s, did you mean --%s? kcpctl does not know the "+
			"flags of this image", p.kind.Program(), release.Newest, name, nearest)}
	}
	message := fmt.Sprintf("%s %s has no flag --%s", p.kind.Program(), version, name)
	switch {
	case slices.Contains(release.Flags(p.kind.Program(), release.Newest), name):
		message += ", which " + release.Newest + " has"
	case nearest != "":
		message += fmt.Sprintf(", did you mean --%s?", nearest)
	}
	return &unknownFlag{message: message, certain: true}
}

// args requires flags in the extraArgs of a component, or of all components of some kinds: each at most once, and none
// that has an owner.
func (v *fields) args(component *field.Path, args []string, kinds ...topology.Kind) {
	for i, a := range args {
		at := component.Child("extraArgs").Index(i)
		name, _, _ := strings.Cut(a, "=")
		if !v.matches(`--[a-z0-9][a-z0-9-]*`, name) {
			v.invalid(at, a, "must be --name=value or --name")
			continue
		}
		v.unique(at, name)
		if owner, ok := ownerOf(kinds, strings.TrimPrefix(name, "--")); ok {
			v.forbidden(at, "%s", owned(name, owner))
		}
	}
}

// ownerOf returns the owner of a flag of components of some kinds: a field, if one of them has it.
func ownerOf(kinds []topology.Kind, flag string) (out topology.FlagOwner, ok bool) {
	for _, k := range kinds {
		switch owner, owned := topology.OwnerOf(k, flag); {
		case owned && owner.Field != "":
			return owner, true
		case owned:
			out, ok = owner, true
		}
	}
	return out, ok
}

// owned says what to do instead of setting a flag that has an owner.
func owned(flag string, owner topology.FlagOwner) string {
	if owner.Field != "" {
		return fmt.Sprintf("set %s instead of %s", owner.Field, flag)
	}
	return strings.TrimSuffix(fmt.Sprintf("extraArgs cannot set %s: %s; %s", flag, owner.Why, owner.Instead), "; ")
}

// flags refuses extra arguments with which a server would not start, unless they are refused already.
func (v *validator) flags() {
	for _, f := range unknownFlags(v.setup) {
		refused := func(e *field.Error) bool { return e.Type == field.ErrorTypeForbidden && e.Field == f.at.String() }
		if f.certain && !slices.ContainsFunc(v.errs, refused) {
			v.forbidden(f.at, "%s", f.message)
		}
	}
}

// doubtfulFlags are notes about extra arguments with which a server may not start.
func doubtfulFlags(s *v1alpha1.Setup) (out []string) {
	for _, f := range unknownFlags(s) {
		if !f.certain {
			out = append(out, fmt.Sprintf("%s: %s", f.at, f.message))
		}
	}
	return out
}
