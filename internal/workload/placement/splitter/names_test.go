package splitter_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

func TestServiceNames(t *testing.T) {
	for text, want := range map[string]string{
		"db": "", "http://db:2379": "", "": "", "10.0.0.1": "0.1", "db.backend": "db.backend", "http://db.backend:2379/x": "db.backend",
		"http://db.backend.svc:2379": "db.backend", "--endpoints=https://db.backend.svc.cluster.local": "db.backend",
		"tcp://user:secret@db.backend.svc.example.com:1/x": "db.backend", "db.backend.example.com": "example.com", "db.backend-1pex4ie5v7.svc": "db.backend-1pex4ie5v7",
		"http://db.backend.svc.cluster.local.:2379": "db.backend", "db.backend.svc.": "db.backend", "etcd-0.db.backend": "db.backend",
		"a.b,c.d": "a.b c.d ",
	} {
		for _, field := range []string{"env: [{name: A, value: %q}]", "args: [x, %q]", "command: [%q]"} {
			o := object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: c, "+fmt.Sprintf(field, text)+"}]}}}}")
			var got []string
			for _, n := range splitter.ServiceNames(o) {
				got = append(got, n.Service+"."+n.Namespace)
			}
			if want == "a.b c.d " {
				require.Equal(t, []string{"a.b", "c.d"}, got, text)
				continue
			}
			require.Equal(t, want, fmt.Sprint(append(got, "")[0]), text)
		}
	}
}
