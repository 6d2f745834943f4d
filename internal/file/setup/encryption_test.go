package setup

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	parse(t, minimal+"spec: {rootShard: {extraArgs: [--encryption-provider-config=/a.yaml]}}\n")
}
