package setup

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/strategic"
)

// httpsPortName is the name of the port that package render gives each Service.
const httpsPortName = "https"

// serviceFields checks overlays of Services.
type serviceFields struct{ *fields }

// services checks the Service of every component.
func (v *validator) services() {
	for _, p := range v.parts {
		overlays := []v1alpha1.Overlay{v.setup.Spec.Defaults.Service, p.Service}
		v.service(p, topology.ServicePort(p.kind, p.Expose.Type, overlays, p.publicPort()))
	}
}

// service checks the ports of a component's Service with all overlays applied, as the API server would. Only the merged
// list shows what is wrong: ports are merged by number. number is the number of our own port.
func (v *validator) service(p part, number int32) {
	overlays := []serviceOverlay{
		{field.NewPath("spec", "defaults", "service"), v.setup.Spec.Defaults.Service},
		{p.path.Child("service"), p.Service},
	}
	merged := map[string]any{"ports": []any{map[string]any{"name": httpsPortName, "port": int64(number)}}}
	for _, o := range overlays {
		if !v.uniquePorts(o) {
			return
		}
		merged = strategic.Merge(merged, o.overlay, reflect.TypeFor[service]())
	}
	v.ports(servicePorts(merged, overlays), number)
}

// ports checks the merged ports of a Service.
func (v serviceFields) ports(ports []servicePort, ours int32) {
	names := map[string]any{}
	numbers := map[string]bool{}
	for _, p := range ports {
		name, _ := p.fields["name"].(string)
		number := p.fields["port"]
		key := fmt.Sprint(number, protocol(p.fields))
		switch first, taken := names[name]; {
		case name == "" && len(ports) > 1:
			v.required(p.path.Child("name"), "the Service has port %d too, and several ports need names", ours)
		case taken:
			v.invalid(p.path.Child("name"), name, "port %v of the Service has the same name", first)
		case numbers[key]:
			v.invalid(p.path.Child("port"), number, "the Service has this port twice")
		}
		names[name], numbers[key] = number, true
	}
}

// servicePort is a port of a merged Service and where the file sets it.
type servicePort struct {
	fields map[string]any
	path   *field.Path
}

// servicePorts returns the ports of a merged Service: ours, then the ports of each overlay.
func servicePorts(merged map[string]any, overlays []serviceOverlay) []servicePort {
	by := make([][]servicePort, len(overlays)+1)
	for _, port := range portsOf(merged) {
		n, at := origin(overlays, port)
		by[n] = append(by[n], servicePort{port, at})
	}
	return slices.Concat(by...)
}

// serviceOverlay is an overlay of a Service and its position in the file.
type serviceOverlay struct {
	path    *field.Path
	overlay v1alpha1.Overlay
}

// uniquePorts reports whether an overlay lists each port number once, and adds an error if not: the merge would combine
// the two. A list that replaces ours is not merged.
func (v serviceFields) uniquePorts(o serviceOverlay) bool {
	seen := map[any]bool{}
	ports := portsOf(o.overlay)
	for _, port := range ports {
		switch {
		case port[strategic.Directive] == strategic.Replace:
			return true
		case port["port"] == nil:
			return false // the decoder reports it
		}
	}
	for i, port := range ports {
		if number := port["port"]; seen[number] {
			v.invalid(o.path.Child("ports").Index(i).Child("port"), number,
				"the list has this port twice, and ports are merged by number")
			return false
		}
		seen[port["port"]] = true
	}
	return true
}

// origin finds the item of an overlay that a merged port comes from, and the number of the overlay from 1. Later
// overlays win. A port of ours is of overlay 0.
func origin(overlays []serviceOverlay, merged map[string]any) (overlay int, at *field.Path) {
	at = overlays[len(overlays)-1].path.Child("ports")
	for n, o := range overlays {
		for i, port := range portsOf(o.overlay) {
			if port["port"] == merged["port"] && protocol(port) == protocol(merged) {
				overlay, at = n+1, o.path.Child("ports").Index(i)
			}
		}
	}
	return overlay, at
}

// protocol returns the protocol of a port of a Service: TCP unless set, as in the Kubernetes API.
func protocol(port map[string]any) any { return cmp.Or(port["protocol"], any("TCP")) }

// portsOf returns the ports of a Service or an overlay. Items that are not objects are empty.
func portsOf(service map[string]any) []map[string]any {
	list, _ := service["ports"].([]any)
	out := make([]map[string]any, len(list))
	for i := range list {
		out[i], _ = list[i].(map[string]any)
	}
	return out
}

// aliases checks the names of the additional Services of all components.
func (v *validator) aliases() {
	owners := map[string]string{}
	for _, o := range (names{v}).objects() {
		owners[o.name] = o.owner
	}
	type place struct{ cluster, name string }
	seen := map[place]bool{}
	for _, p := range v.parts {
		for i, name := range p.Aliases {
			at := p.path.Child("aliases").Index(i)
			owner, taken := owners[name]
			switch {
			case len(validation.IsDNS1035Label(name)) > 0:
				v.invalid(at, name, "must be the name of a Service: lower-case letters, digits and '-', at most 63, "+
					"beginning with a letter")
			case taken:
				v.invalid(at, name, "%s has an object of this name", owner)
			case seen[place{p.Cluster, name}]:
				v.errs = append(v.errs, field.Duplicate(at, name))
			}
			seen[place{p.Cluster, name}] = true
		}
	}
}
