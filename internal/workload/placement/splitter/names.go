package splitter

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ServiceName is the name of a Service with its namespace.
type ServiceName struct{ Service, Namespace string }

// serviceName is such a name: db.backend, db.backend.svc and db.backend.svc.cluster.local, which may end with a dot.
var serviceName = regexp.MustCompile(`\b([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)\.([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)` +
	`(?:\.svc(?:\.[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?)?\.?)?(?:[^-.a-z0-9]|$)`)

// ServiceNames returns what looks like the name of a Service in the variables, commands and arguments of the containers
// of a workload, in their order.
func ServiceNames(u *unstructured.Unstructured) (all []ServiceName) {
	find := func(value any) {
		text, _ := value.(string)
		for _, m := range serviceName.FindAllStringSubmatch(text, -1) {
			all = append(all, ServiceName{Service: m[1], Namespace: m[2]})
		}
	}
	spec := PodSpec(u)
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range objects(spec, list) {
			for _, e := range objects(c, env) {
				find(e["value"])
			}
			for _, field := range []string{"command", "args"} {
				values, _ := c[field].([]any)
				for _, v := range values {
					find(v)
				}
			}
		}
	}
	return all
}
