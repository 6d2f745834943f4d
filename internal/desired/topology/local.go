package topology

import (
	"path/filepath"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// local is where the components of a setup are on this machine.
type local struct {
	dir   string
	ports map[string]int32
	// names are the names of ports, in the order in which components request them.
	names []string
}

// BuildLocal returns the components of a setup on this machine: Services become loopback ports, and every etcd is
// embedded. dir is the state directory of the setup; ports has a port for each of PortNames.
func BuildLocal(s *v1alpha1.Setup, dir string, ports map[string]int32) *Topology {
	return (&builder{setup: s, local: &local{dir: dir, ports: ports}}).build()
}

// PortNames returns the names of the ports that a setup needs on this machine, such as shard/alpha and
// shard/alpha/etcd-client, in the order in which they are assigned.
func PortNames(s *v1alpha1.Setup) []string {
	b := &builder{setup: s, local: &local{}}
	b.build()
	return b.local.names
}

func (b *builder) port(name string) int32 {
	b.local.names = append(b.local.names, name)
	return b.local.ports[name]
}

// ComponentDir returns the directory of a component's configuration and data below the state directory of its setup;
// object is the component's Object().
func ComponentDir(dir, object string) string { return filepath.Join(dir, "components", object) }
