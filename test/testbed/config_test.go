package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestConfigsRender(t *testing.T) {
	n := nodes()[1]
	for _, c := range n.configs() {
		t.Run(c.template, func(t *testing.T) {
			content, err := render(c.template, c.data)
			require.NoError(t, err)
			require.NotContains(t, string(content), "{{")
			if strings.HasSuffix(c.template, ".toml") {
				return // no decoder is at hand; containerd refuses what it does not know
			}
			var decoded map[string]any
			require.NoError(t, yaml.UnmarshalStrict(content, &decoded))
		})
		for key := range c.data {
			short := map[string]any{}
			for k, v := range c.data {
				if k != key {
					short[k] = v
				}
			}
			_, err := render(c.template, short)
			require.Error(t, err, "%s does not use %s, or not strictly", c.template, key)
		}
	}
}

func TestAddonsDecode(t *testing.T) {
	manifests, err := nodes()[0].addons()
	require.NoError(t, err)
	for _, document := range strings.Split(string(manifests), "\n---\n") {
		var object struct{ Kind, APIVersion string }
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		require.NotEmpty(t, object.Kind)
		require.NotEmpty(t, object.APIVersion)
	}
}
