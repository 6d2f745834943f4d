package render

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Prove verifies offline that all connections of a setup can work, with the bundles that its rendered objects mount
// (see pki.Prove).
func Prove(t *topology.Topology, s *pki.State, now time.Time) error {
	return renderAll(t, s, now, isMounted, func(int, []Object) error { return nil })
}

// notFitting is the error of a proof, or nil.
func notFitting(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("certificates do not fit together: %w", err)
}

// hasFiles reports whether a component has files that it, or another one, mounts.
func hasFiles(c *topology.Component) bool {
	return c.Runs() || c.Kind == topology.Base || c.Kind == topology.Kubeconfig
}

// isMounted reports whether a template has files of components, or the pods that mount them.
func isMounted(template string) bool {
	return slices.Contains([]string{configMapTemplate, secretTemplate, deploymentTemplate,
		statefulSetTemplate}, template)
}

func newMounted(t *topology.Topology, s *pki.State) *mounted {
	m := &mounted{
		t: t, authorities: map[topology.CA]pki.Bundle{}, pods: map[topology.ID]pod{},
		sources: map[sourceKey]map[string]string{},
	}
	for _, ca := range topology.CAs {
		m.authorities[ca] = s.BundleOf(ca)
	}
	return m
}

// mounted is what components read, as it is rendered.
type mounted struct {
	t *topology.Topology
	// authorities are the bundles of all authorities.
	authorities map[topology.CA]pki.Bundle

	mu   sync.Mutex
	pods map[topology.ID]pod
	// sources are the files in Secrets and ConfigMaps.
	sources map[sourceKey]map[string]string
}

type sourceKey struct{ cluster, kind, name string }

// pod is the flags of a process, and where its files come from.
type pod struct {
	flags map[string]string
	files map[string]mountedFile
}

// mountedFile is a key of a Secret or a ConfigMap.
type mountedFile struct {
	sourceKey
	key string
}

// add adds the objects of a component.
func (m *mounted) add(c *topology.Component, objects []Object) error {
	for _, o := range objects {
		switch o.GetKind() {
		case "Secret", "ConfigMap":
			content := contentOf(o)
			m.mu.Lock()
			m.sources[sourceKey{o.Cluster, o.GetKind(), o.GetName()}] = content
			m.mu.Unlock()
		case "Deployment", "StatefulSet":
			own, err := ownPodOf(c, o)
			if err != nil {
				return err
			}
			p := pod{flags: flagsOf(own.container), files: filesOf(o.Cluster, own)}
			m.mu.Lock()
			m.pods[c.ID()] = p
			m.mu.Unlock()
		}
	}
	return nil
}

// contentOf returns the files in a Secret or a ConfigMap, without private keys, as they are encoded there.
func contentOf(o Object) map[string]string {
	data, _, _ := unstructured.NestedFieldNoCopy(o.Object, "data")
	entries, _ := data.(map[string]any)
	out := map[string]string{}
	for key, value := range entries {
		if text, ok := value.(string); ok && !strings.HasSuffix(key, ".key") {
			out[key] = text
		}
	}
	return out
}

// content returns a file of a Secret or a ConfigMap.
func (m *mounted) content(k sourceKey, key string) (content string, found bool, err error) {
	content, found = m.sources[k][key]
	if !found || k.kind == "ConfigMap" {
		return content, found, nil
	}
	raw, err := base64.StdEncoding.DecodeString(content)
	if err != nil {
		return "", true, fmt.Errorf("read %s of Secret %s: %w", key, k.name, err)
	}
	return string(raw), true, nil
}

// podSpec has the fields of a pod that are read. To decode a whole pod takes longer than to render it.
type podSpec struct {
	Containers []container `json:"containers"`
	Volumes    []podVolume `json:"volumes"`
}

// ownPod is the container of a pod that kcpctl renders, and the volumes of the pod.
type ownPod struct {
	container
	volumes []podVolume
}

type container struct {
	Name         string               `json:"name"`
	Command      []string             `json:"command"`
	Args         []string             `json:"args"`
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts"`
}

type podVolume struct {
	Name      string                        `json:"name"`
	Projected *corev1.ProjectedVolumeSource `json:"projected"`
}

func ownPodOf(c *topology.Component, o Object) (ownPod, error) {
	var spec podSpec
	raw, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err == nil {
		err = kruntime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec)
	}
	var names []string
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	own := c.Kind.OwnContainer(names)
	if err == nil && own < 0 {
		err = fmt.Errorf("no container has the name %s", c.Kind.Container())
	}
	if err != nil {
		return ownPod{}, fmt.Errorf("read the pod of %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return ownPod{spec.Containers[own], spec.Volumes}, nil
}

// flagsOf returns the flags of the container that kcpctl renders.
func flagsOf(c container) map[string]string {
	out := map[string]string{}
	for _, arg := range slices.Concat(c.Command, c.Args) {
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "--") {
			out[strings.TrimPrefix(name, "--")] = value
		}
	}
	return out
}

// filesOf returns the files that the container of kcpctl mounts, by path.
func filesOf(cluster string, p ownPod) map[string]mountedFile {
	out := map[string]mountedFile{}
	for _, mount := range p.VolumeMounts {
		i := slices.IndexFunc(p.volumes, func(v podVolume) bool { return v.Name == mount.Name })
		if i < 0 || p.volumes[i].Projected == nil {
			continue
		}
		add := func(kind, name string, items []corev1.KeyToPath) {
			for _, item := range items {
				out[path.Join(mount.MountPath, item.Path)] = mountedFile{sourceKey{cluster, kind, name}, item.Key}
			}
		}
		for _, s := range p.volumes[i].Projected.Sources {
			if s.Secret != nil {
				add("Secret", s.Secret.Name, s.Secret.Items)
			}
			if s.ConfigMap != nil {
				add("ConfigMap", s.ConfigMap.Name, s.ConfigMap.Items)
			}
		}
	}
	return out
}

// unknown is a bundle that kcpctl does not render.
func unknown(name string) pki.Bundle { return pki.Bundle{Name: name, Unknown: true} }

// Trusts implements pki.Mounted.
func (m *mounted) Trusts(client topology.ID, e topology.Edge) (pki.Bundle, error) {
	c := m.t.Component(client)
	switch {
	case e.Unverified:
		return unknown("no bundle"), nil
	case client == topology.Self || e.With == "" && e.BundleFlag == "":
		return m.authorities[e.Trust], nil
	case c.Kind == topology.Kubeconfig:
		content, _, err := m.content(sourceKey{c.Cluster.Name, "Secret", c.Object()}, KubeconfigKey)
		if err != nil {
			return pki.Bundle{}, err
		}
		return m.ofKubeconfig(c, c.Object(), content)
	case e.With != "":
		file := c.Path(files.Kubeconfig(e.With))
		if !m.pods[client].passes(file) { // an extra argument replaces it
			return unknown(file), nil
		}
		content, ok, err := m.read(c, file)
		if !ok || err != nil {
			return unknown(file), err
		}
		return m.ofKubeconfig(c, file, content)
	case e.BundleFlag == topology.FlagPathMapping:
		return m.ofPathMapping(c)
	}
	return m.ofFlag(c, e.BundleFlag)
}

// Accepts implements pki.Mounted.
func (m *mounted) Accepts(server topology.ID, e topology.Edge) (pki.Bundle, error) {
	c := m.t.Component(server)
	switch {
	case !c.Verifies(e.Accept):
		return unknown("no bundle"), nil
	case e.BundleFlag == topology.FlagPeerCA:
		return m.ofFlag(c, topology.FlagPeerCA)
	}
	return m.ofFlag(c, map[topology.CA]string{
		topology.ClientCA: "client-ca-file", topology.RequestHeaderCA: "requestheader-client-ca-file",
		topology.EtcdCA: "trusted-ca-file",
	}[e.Accept])
}

// passes reports whether a flag of the process is a file.
func (p pod) passes(file string) bool {
	for _, value := range p.flags {
		if value == file {
			return true
		}
	}
	return false
}

// read returns a file of a component. ok is false if kcpctl does not render its content.
func (m *mounted) read(c *topology.Component, file string) (content string, ok bool, err error) {
	mount, found := m.pods[c.ID()].files[file]
	if !found {
		if strings.HasPrefix(file, c.ConfigDir+"/") {
			return "", false, fmt.Errorf("%s is not mounted", file)
		}
		return "", false, nil
	}
	if m.sources[mount.sourceKey] == nil {
		return "", false, nil // an object of the user
	}
	if content, ok, err = m.content(mount.sourceKey, mount.key); err == nil && !ok {
		err = fmt.Errorf("%s is mounted from %s %s, which has no key %s", file, mount.kind, mount.name, mount.key)
	}
	return content, ok, err
}

// ofFlag returns the bundle in the file that a flag of a component names.
func (m *mounted) ofFlag(c *topology.Component, name string) (pki.Bundle, error) {
	file := m.pods[c.ID()].flags[name]
	if file == "" {
		return pki.Bundle{}, fmt.Errorf("the flag --%s is missing", name)
	}
	return m.ofFile(c, file)
}

func (m *mounted) ofFile(c *topology.Component, file string) (pki.Bundle, error) {
	content, ok, err := m.read(c, file)
	if !ok || err != nil {
		return unknown(file), err
	}
	return m.bundle(file, content), nil
}

// bundle names a bundle after an authority, if it is exactly the bundle of the authority, or else after where it is.
func (m *mounted) bundle(where, content string) pki.Bundle {
	for _, ca := range topology.CAs {
		if b := m.authorities[ca]; b.PEM == content {
			return b
		}
	}
	return pki.Bundle{Name: where, PEM: content}
}

// ofKubeconfig returns the bundle of a kubeconfig.
func (m *mounted) ofKubeconfig(c *topology.Component, where, content string) (pki.Bundle, error) {
	file, data, err := kubeconfig.Bundle([]byte(content))
	switch {
	case err != nil:
		return pki.Bundle{}, fmt.Errorf("read %s: %w", where, err)
	case file != "":
		return m.ofFile(c, file)
	case len(data) == 0:
		return pki.Bundle{Name: "the authorities of its system", System: true}, nil
	}
	return m.bundle(where, string(data)), nil
}

// ofPathMapping returns the bundle with which a front-proxy verifies shards.
func (m *mounted) ofPathMapping(c *topology.Component) (pki.Bundle, error) {
	content, ok, err := m.read(c, m.pods[c.ID()].flags[topology.FlagPathMapping])
	if !ok || err != nil {
		return unknown("its path mapping"), err
	}
	var all []struct {
		Path string `json:"path"`
		CA   string `json:"backend_server_ca"`
	}
	if err := yaml.Unmarshal([]byte(content), &all); err != nil {
		return pki.Bundle{}, fmt.Errorf("read the path mapping: %w", err)
	}
	for _, mapping := range all {
		if slices.Contains(topology.MappedPaths, mapping.Path) {
			return m.ofFile(c, mapping.CA)
		}
	}
	return pki.Bundle{}, fmt.Errorf("the path mapping leads to no shard")
}
