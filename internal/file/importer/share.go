package importer

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// share moves what all components have in common to where the setup has it once.
func (a *assembly) share() {
	spec := &a.setup.Spec
	all := spec.Components()
	root := &spec.RootShard.Component
	if root.Replicas == 0 {
		a.root.comment("spec.defaults.replicas", "The default of kcp-operator.")
	}
	a.defaultTags()
	for _, c := range all {
		c.Image.Repository = cmp.Or(c.Image.Repository, operatorRepository)
		c.Image.Tag = cmp.Or(c.Image.Tag, operatorTag)
		if c.Replicas == 0 && (spec.CacheServer == nil || c != &spec.CacheServer.Component ||
			spec.CacheServer.Etcd != nil) {
			c.Replicas = operatorReplicas
		}
	}
	spec.Image.Repository = root.Image.Repository
	spec.Defaults.Replicas = root.Replicas
	if len(root.Image.PullSecrets) > 0 && !slices.ContainsFunc(all, func(c *v1alpha1.Component) bool {
		return !slices.Equal(c.Image.PullSecrets, root.Image.PullSecrets)
	}) {
		spec.Image.PullSecrets = root.Image.PullSecrets
	}
	a.release("image.tag")
	replicas := root.Replicas
	for _, c := range all {
		if c.Replicas == replicas {
			c.Replicas = 0
		}
	}
}

// defaultTags reports the objects without an image tag: which release they run depends on the release of kcp-operator.
func (a *assembly) defaultTags() {
	if a.root.component.Image.Tag == "" {
		a.root.comment("spec.version", "The default of kcp-operator v0.9.")
	}
	var names []string
	for _, o := range a.reader.operator() {
		if o.as != "" && o.component.Image.Tag == "" {
			names = append(names, o.String())
		}
	}
	if len(names) == 0 {
		return
	}
	a.root.find(Review, fmt.Sprintf("the input does not say which release of kcp these objects run: %s; the setup has "+
		"the default of kcp-operator v0.9, %s, and each release of kcp-operator has another one",
		gather.Few(names, gather.Listed, ", "), operatorTag),
		"set spec.version to the release that runs, or image.tag of a component: kubectl get deployments -o wide")
}

// release sets the release of the setup by the tag of the root shard, and removes from components what the setup has
// for all.
func (a *assembly) release(from string) {
	spec := &a.setup.Spec
	tag := spec.RootShard.Image.Tag
	switch {
	case isRelease(tag):
		spec.Version = tag
	case tag != "":
		spec.Image.Tag = tag
		a.root.from(from).find(Review, "the tag is not the name of a kcp release, which determines the flags",
			"set spec.version to the release in the image")
	}
	for _, c := range spec.Components() {
		c.Image = without(c.Image, spec.Image, tag)
	}
	if spec.Image.Repository == operatorRepository {
		spec.Image.Repository = ""
	}
}

// without returns an image without what the setup has for all components.
func without(i, shared v1alpha1.Image, tag string) v1alpha1.Image {
	if i.Repository == shared.Repository {
		i.Repository = ""
	}
	if i.Tag == tag {
		i.Tag = ""
	}
	if reflect.DeepEqual(i.PullSecrets, shared.PullSecrets) {
		i.PullSecrets = nil
	}
	return i
}

func isRelease(tag string) bool {
	_, err := version.ParseSemantic(tag)
	return err == nil && strings.HasPrefix(tag, "v")
}
