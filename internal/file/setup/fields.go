package setup

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fields collects the problems of fields whatever section they are in. format.go and address.go have its formats.
type fields struct {
	errs field.ErrorList
	// patterns caches compiled patterns, because a setup can have a thousand shards.
	patterns map[string]*regexp.Regexp
	// taken has the values that unique has seen, by list and field.
	taken map[[2]string]bool
}

func newFields() *fields {
	return &fields{patterns: map[string]*regexp.Regexp{}, taken: map[[2]string]bool{}}
}

func (v *fields) invalid(p *field.Path, value any, format string, args ...any) {
	v.errs = append(v.errs, field.Invalid(p, value, fmt.Sprintf(format, args...)))
}

func (v *fields) required(p *field.Path, format string, args ...any) {
	v.errs = append(v.errs, field.Required(p, fmt.Sprintf(format, args...)))
}

func (v *fields) forbidden(p *field.Path, format string, args ...any) {
	v.errs = append(v.errs, field.Forbidden(p, fmt.Sprintf(format, args...)))
}

// oneOf requires one of some values.
func oneOf[T ~string](v *fields, p *field.Path, value T, known ...T) {
	var names []string
	for _, k := range known {
		if value == k {
			return
		}
		names = append(names, string(k))
	}
	v.errs = append(v.errs, &field.Error{
		Type: field.ErrorTypeNotSupported, Field: p.String(), BadValue: value,
		Detail: "known: " + strings.Join(names, ", "),
	})
}

// reference requires the name of something that exists.
func (v *fields) reference(p *field.Path, what, name string, known []string) {
	if slices.Contains(known, name) {
		return
	}
	v.errs = append(v.errs, &field.Error{
		Type: field.ErrorTypeNotFound, Field: p.String(), BadValue: name,
		Detail: fmt.Sprintf("%s not found, known: %s", what, strings.Join(known, ", ")),
	})
}

// unique requires a value that no earlier item of the list has in the same field.
func (v *fields) unique(p *field.Path, value string) {
	path := p.String()
	item, end := strings.LastIndexByte(path, '['), strings.LastIndexByte(path, ']')
	key := [2]string{path[:item] + path[end:], value}
	if value != "" && v.taken[key] {
		v.errs = append(v.errs, field.Duplicate(p, value))
	}
	v.taken[key] = true
}

// matches reports whether a pattern matches all of s.
func (v *fields) matches(pattern, s string) bool {
	re := v.patterns[pattern]
	if re == nil {
		re = regexp.MustCompile(`^(?:` + pattern + `)$`)
		v.patterns[pattern] = re
	}
	return re.MatchString(s)
}

// replicas checks the number of replicas of a component that cannot leave it to others.
func (v *fields) replicas(p *field.Path, n *int32) {
	if n != nil && *n < 1 {
		v.invalid(p.Child("replicas"), *n, "must be at least 1")
	}
}

func (v *fields) resources(p *field.Path, r *corev1.ResourceRequirements) {
	if r == nil {
		return
	}
	v.quantities(p.Child("requests"), r.Requests)
	v.quantities(p.Child("limits"), r.Limits)
	for _, name := range sortedNames(r.Requests) {
		request := r.Requests[name]
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			v.invalid(p.Child("requests").Key(string(name)), request.String(),
				"must be at most the limit, %s", limit.String())
		}
	}
}

func (v *fields) quantities(p *field.Path, list corev1.ResourceList) {
	for _, name := range sortedNames(list) {
		if q := list[name]; q.Sign() < 0 {
			v.invalid(p.Key(string(name)), q.String(), "must not be negative")
		}
	}
}

func (v *fields) storage(p *field.Path, q *resource.Quantity, class string) {
	if q != nil && q.Sign() <= 0 {
		v.invalid(p.Child("storage"), q.String(), "must be greater than 0")
	}
	if class != "" {
		v.subdomain(p.Child("storageClassName"), class)
	}
}

// annotationMap requires valid keys of annotations.
func (v *fields) annotationMap(p *field.Path, all map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
			v.invalid(p.Key(key), key, "%s", problem)
		}
	}
}

// labelMap requires valid labels.
func (v *fields) labelMap(p *field.Path, all map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		for _, problem := range append(content.IsLabelKey(key), validation.IsValidLabelValue(all[key])...) {
			v.invalid(p.Key(key), all[key], "%s", problem)
		}
	}
}

// originPlacement marks fields that are required only because of the placement of components.
const originPlacement = "placement"

// unplaced requires a field because of the placement of components.
func (v *fields) unplaced(p *field.Path, format string, args ...any) {
	v.required(p, format, args...)
	v.errs[len(v.errs)-1].Origin = originPlacement
}
