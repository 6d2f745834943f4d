package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// workload is a Deployment as a process of this machine.
type workload struct {
	name string
	// hash changes whenever the pod template does, and with it the content of the files (see the template's
	// annotation).
	hash    string
	program string // the name of the binary
	args    []string
	env     []string
	grace   time.Duration
	// dir is the component's directory. Below it, configDir has the files that it reads, and dataDirs have its data.
	dir       string
	configDir string
	dataDirs  []string
	mounts    []mount
}

// mount is a volume of files.
type mount struct {
	path    string
	sources []source
}

// source is a Secret or ConfigMap, and the keys that become files: all of them if items is empty.
type source struct {
	kind, name string
	items      []corev1.KeyToPath
	optional   bool
}

// defaultGrace is the grace period of a pod that does not set one.
const defaultGrace = 30 * time.Second

// deployment has what is read of a Deployment. The types of k8s.io/api/apps would make kcpctl larger.
type deployment struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// workload reads a Deployment.
func (l *Layout) workload(obj *unstructured.Unstructured) (*workload, error) {
	var d deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &d); err != nil {
		return nil, fmt.Errorf("read Deployment %s: %w", obj.GetName(), err)
	}
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) > 0 || len(pod.Containers[0].Command) == 0 {
		return nil, clierr.New(clierr.BadInput, "remove them from podTemplate, or use a cluster",
			"Deployment %s has more containers than kcp's: on this machine each component is one process", d.Name)
	}
	c := pod.Containers[0]
	template, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(template)
	w := &workload{
		name: d.Name, hash: hex.EncodeToString(sum[:]), grace: defaultGrace,
		program: filepath.Base(c.Command[0]), args: append(c.Command[1:len(c.Command):len(c.Command)], c.Args...),
	}
	if s := pod.TerminationGracePeriodSeconds; s != nil {
		w.grace = time.Duration(*s) * time.Second
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			return nil, clierr.New(clierr.BadInput, "set the value of the variable in podTemplate",
				"the environment variable %s of Deployment %s uses valueFrom, which only works on a cluster", e.Name,
				d.Name)
		}
		w.env = append(w.env, e.Name+"="+e.Value)
	}
	return w, w.setMounts(l, pod, c)
}

// setMounts classifies the volumes of a pod: files, directories for data, and volumes that a process on this machine
// does not need.
func (w *workload) setMounts(l *Layout, pod corev1.PodSpec, c corev1.Container) error {
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range c.VolumeMounts {
		v := volumes[m.Name]
		m.MountPath = l.below(w.name, m.MountPath)
		ours := within(l.path(), m.MountPath)
		sources := sourcesOf(v)
		switch {
		case sources != nil && !ours:
			return clierr.New(clierr.BadInput, "remove the volume from podTemplate, or use a cluster",
				"the volume %s of Deployment %s would be written to %s, outside the state directory", v.Name,
				w.name, m.MountPath)
		case sources != nil:
			w.mounts = append(w.mounts, mount{m.MountPath, sources})
			if w.configDir == "" {
				w.configDir, w.dir = m.MountPath, filepath.Dir(m.MountPath)
			}
		case ours:
			w.dataDirs = append(w.dataDirs, m.MountPath)
		}
	}
	if !within(l.path(), w.dir) {
		return fmt.Errorf("Deployment %s has no directory of its own", w.name)
	}
	return nil
}

// below returns a path of a component below the state directory, which can have been moved since the path was applied.
func (l *Layout) below(object, path string) string {
	dir := topology.ComponentDir(string(filepath.Separator), object) + string(filepath.Separator)
	if _, rest, ok := strings.Cut(path, dir); ok && !within(l.path(), path) {
		return filepath.Join(topology.ComponentDir(l.Dir, object), rest)
	}
	return path
}

// sourcesOf returns the objects of a volume whose keys become files, or nil.
func sourcesOf(v corev1.Volume) []source {
	switch {
	case v.Secret != nil:
		return []source{{kindSecret, v.Secret.SecretName, v.Secret.Items, isTrue(v.Secret.Optional)}}
	case v.ConfigMap != nil:
		return []source{{kindConfigMap, v.ConfigMap.Name, v.ConfigMap.Items, isTrue(v.ConfigMap.Optional)}}
	case v.Projected == nil:
		return nil
	}
	var out []source
	for _, p := range v.Projected.Sources {
		if s := p.Secret; s != nil {
			out = append(out, source{kindSecret, s.Name, s.Items, isTrue(s.Optional)})
		}
		if c := p.ConfigMap; c != nil {
			out = append(out, source{kindConfigMap, c.Name, c.Items, isTrue(c.Optional)})
		}
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }

// within reports whether a path is below a directory.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// processEnv returns the environment of a component's process. It is as small as in a container, so that the
// environment of the user's shell, such as a proxy or a kubeconfig, does not change what the process does.
func (w *workload) processEnv() []string {
	return append([]string{"HOME=" + w.dir, "PATH=/usr/local/bin:/usr/bin:/bin"}, w.env...)
}
