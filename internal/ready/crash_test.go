package ready

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNext(t *testing.T) {
	const (
		gone    = `{"level":"fatal","caller":"etcdmain/etcd.go:183","msg":"discovery failed","error":"member ff31f1d4abedee66 has already been bootstrapped"}`
		removed = `{"level":"warn","caller":"etcdserver/server.go:1159","msg":"server error","error":"the member has been permanently removed from the cluster"}`
		stops   = `{"level":"info","caller":"rafthttp/peer.go:330","msg":"stopped remote peer","remote-peer-id":"1ff938cd303f34d9"}`
		command = "kcpctl etcd replace-member demo-etcd-root-1"
	)
	for name, tc := range map[string]struct {
		container string
		lines     []string
		want      string
	}{
		"nothing was logged":              {"etcd", nil, ""},
		"the data is gone":                {"etcd", []string{"starting", gone, ""}, command},
		"removed, with lines after it":    {"etcd", []string{removed, stops, stops}, command},
		"another reason":                  {"etcd", []string{stops, `{"level":"fatal","error":"no space left on device"}`}, ""},
		"another server logs what it did": {"kcp", []string{gone, removed}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Crash{Pod: "demo-etcd-root-1", Container: tc.container}.Next(tc.lines))
		})
	}
}
