package setup

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

func TestEncryption(t *testing.T) {
	require.Equal(t, []string{"secrets"}, parse(t, minimal+"spec: {encryption: {}}\n").Spec.Encryption.Resources)
	require.Nil(t, parse(t, minimal).Spec.Encryption)
	_, err := Parse("kcp.yaml", []byte(minimal+`spec:
  encryption: {resources: [secrets, pods, secrets]}
  defaults: {extraArgs: [--encryption-provider-config=/a.yaml]}
  rootShard: {extraArgs: [--encryption-provider-config-automatic-reload=true]}
`))
	for _, want := range []string{
		`spec.encryption.resources[1]: unsupported value "pods", known: secrets, configmaps`,
		`spec.encryption.resources[2]: duplicate`,
		`spec.defaults.extraArgs[0]: spec.encryption sets --encryption-provider-config: remove one of them`,
		`spec.rootShard.extraArgs[0]: spec.encryption sets --encryption-provider-config: remove one of them`,
	} {
		require.ErrorContains(t, err, want)
	}
	const kms = minimal + "spec: {encryption: {kms: {endpoint: %q}}}\n"
	require.Equal(t, &v1alpha1.KMS{Name: "kms", Endpoint: "unix:///run/kms.sock"},
		parse(t, fmt.Sprintf(kms, "unix:///run/kms.sock")).Spec.Encryption.KMS)
	for _, endpoint := range []string{"", "/run/kms.sock", "unix://kms.sock", "https://kms.example.com"} {
		_, err := Parse("kcp.yaml", fmt.Appendf(nil, kms, endpoint))
		require.ErrorContains(t, err, fmt.Sprintf("spec.encryption.kms.endpoint: invalid value %q: not the socket of a KMS plugin, such as "+
			"unix:///run/kms/kms.sock", endpoint))
	}
	parse(t, minimal+"spec: {rootShard: {extraArgs: [--encryption-provider-config=/a.yaml]}}\n")
}
