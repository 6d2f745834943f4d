package workloads_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// Only quantities count: other texts of users can look like one.
func TestHugeQuantity(t *testing.T) {
	for text, want := range map[string]string{
		`{spec: {template: {spec: {containers: [{name: a}, {name: b, resources: {limits: {cpu: "1e1000000000"}}}]}}}}`:                         "spec.template.spec.containers[1].resources.limits.cpu",
		`{spec: {template: {spec: {volumes: [{emptyDir: {sizeLimit: "-1E99999"}}]}}}}`:                                                         "spec.template.spec.volumes[0].emptyDir.sizeLimit",
		`{spec: {volumeClaimTemplates: [{spec: {resources: {requests: {storage: "1e+10000Gi"}}}}]}}`:                                           "spec.volumeClaimTemplates[0].spec.resources.requests.storage",
		`{spec: {metrics: [{resource: {target: {averageValue: "1e10000"}}}]}}`:                                                                 "spec.metrics[0].resource.target.averageValue",
		`{spec: {metrics: [{object: {target: {value: "1e10000"}}}]}}`:                                                                          "spec.metrics[0].object.target.value",
		`{spec: {hard: {pods: "11111111111111111111111111111111111111111111111111111111111111111"}}}`:                                          "spec.hard.pods",
		`{spec: {template: {spec: {containers: [{resources: {limits: {cpu: "1e12", memory: 8Gi}, requests: {cpu: 100m}}}]}}}}`:                 "",
		`{metadata: {annotations: {limits: "1e1000000000"}}, spec: {template: {spec: {containers: [{env: [{name: A, value: "12e45678"}]}]}}}}`: "",
		`{spec: {limits: {note: "1 apple 1e10000"}}, data: {value: "1e1000000000"}}`:                                                           "",
	} {
		require.Equal(t, want, api.HugeQuantity(fakeapi.Object(text)), text)
	}
}
