// Package served has the APIs of a cluster, as ConfigMaps in the compute workspace: one for each API. The syncer of the
// cluster writes them, and the controller reads them as the input of someone else: it limits their sizes, and checks
// what they claim. Objects in, objects out.
package served

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// The limits of the content of a ConfigMap. The content for Deployments has 40 KB, and 600 KB without compression.
const (
	// maxCompressed is the length of the compressed content, in bytes. A ConfigMap has at most 1 MiB (core/validation:
	// MaxSecretSize).
	maxCompressed = 1000 << 10
	// maxContent is the length of the content, in bytes.
	maxContent = 16 << 20
	// maxObjects is the number of JSON objects in it: each needs about a kilobyte of memory when it is decoded.
	maxObjects = 20000
	// maxCommas limits the values in lists, which also need memory, and time to compare them.
	maxCommas = 500000
)

const key = "api.json.gz"

// API is one API as a cluster serves it.
type API struct {
	// Versions are the versions that the cluster serves, the preferred one first.
	Versions []negotiate.API `json:"versions,omitempty"`
	// Problem is why the cluster does not serve the API, or why its schema cannot be read. Then there are no versions.
	Problem string `json:"problem,omitempty"`
}

// Of returns what a cluster serves of an API.
func Of(gr schema.GroupResource, c negotiate.Cluster) API {
	out := API{Problem: c.Problems[gr]}
	for _, a := range c.APIs {
		if a.GroupResource() == gr && out.Problem == "" {
			out.Versions = append(out.Versions, a)
		}
	}
	return out
}

// Encode returns the content of a ConfigMap. An API that is too large for a ConfigMap becomes a problem.
func Encode(a API) ([]byte, error) {
	content, err := encode(a)
	if large, ok := errors.AsType[sizeError](err); ok {
		return encode(API{Problem: large.Error()})
	}
	return content, err
}

func encode(a API) ([]byte, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if err := checkSize(raw); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err = w.Write(raw); err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if out.Len() > maxCompressed {
		return nil, sizeError(fmt.Sprintf("compressed, it has %d bytes, more than %d", out.Len(), maxCompressed))
	}
	return out.Bytes(), nil
}

type sizeError string

func (e sizeError) Error() string { return "the controller cannot read its schema: " + string(e) }

func checkSize(raw []byte) error {
	if len(raw) > maxContent {
		return sizeError(fmt.Sprintf("it has more than %d bytes", maxContent))
	}
	if n := bytes.Count(raw, []byte("{")); n > maxObjects {
		return sizeError(fmt.Sprintf("it has %d braces, more than %d", n, maxObjects))
	}
	if n := bytes.Count(raw, []byte(",")); n > maxCommas {
		return sizeError(fmt.Sprintf("it has %d commas, more than %d", n, maxCommas))
	}
	return nil
}

// Object returns the ConfigMap of an API of a cluster, for server-side apply. It goes with the Cluster.
func Object(cluster string, uid types.UID, gr schema.GroupResource, content []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"binaryData": map[string]any{key: base64.StdEncoding.EncodeToString(content)}}}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace(api.NamespaceLeases)
	u.SetName(api.ConfigMapCluster(cluster, gr))
	// kcp deletes objects without their owner, as Kubernetes does (kcp: pkg/reconciler/garbagecollector).
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: api.ClusterGVK().GroupVersion().String(),
		Kind: api.KindCluster, Name: cluster, UID: uid}})
	return u
}

// IsOf reports whether a ConfigMap belongs to the Cluster with a UID: another one can have had its name.
func IsOf(configMap *unstructured.Unstructured, cluster types.UID) bool {
	return slices.ContainsFunc(configMap.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.Kind == api.KindCluster && r.UID == cluster })
}

// Decode reads the ConfigMap of an API. It fails if the content is too large, or not what a syncer writes.
func Decode(gr schema.GroupResource, configMap *unstructured.Unstructured) (out API, err error) {
	text := textOf(configMap)
	if text == "" {
		return out, fmt.Errorf("it has no key %s", key)
	}
	raw, err := decompress(text)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err == nil {
		err = out.check(gr)
	}
	if err != nil {
		return API{}, fmt.Errorf("key %s: %w", key, err)
	}
	return out, nil
}

// Hash identifies the content of a ConfigMap. It does not unpack it.
func Hash(configMap *unstructured.Unstructured) string {
	sum := sha256.Sum256([]byte(textOf(configMap)))
	return hex.EncodeToString(sum[:16])
}

func textOf(configMap *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(configMap.Object, "binaryData", key)
	return text
}

func decompress(text string) ([]byte, error) {
	compressed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxContent+1))
	if err != nil {
		return nil, err
	}
	return raw, checkSize(raw)
}

// maxProblem is the length of the longest problem, in bytes: it becomes part of the status of the Cluster.
const maxProblem = 4 << 10

// check returns why this is not what a cluster serves of an API. kcp checks the schemas themselves.
func (a *API) check(gr schema.GroupResource) error {
	if len(a.Problem) > maxProblem {
		return fmt.Errorf("the problem has more than %d bytes", maxProblem)
	}
	if (a.Problem == "") == (len(a.Versions) == 0) {
		return errors.New("it must have either versions or a problem")
	}
	var versions []string
	for i := range a.Versions {
		v := &a.Versions[i]
		switch {
		case v.GroupResource() != gr:
			return fmt.Errorf("it has the API %s", v.GroupResource())
		case len(validation.IsDNS1035Label(v.Version)) > 0 || slices.Contains(versions, v.Version):
			return fmt.Errorf("it has the version %q, which is not valid, or there twice", v.Version)
		case v.Names.Kind == "":
			return fmt.Errorf("version %s has no kind", v.Version)
		case v.Scope != apiextensionsv1.NamespaceScoped && v.Scope != apiextensionsv1.ClusterScoped:
			return fmt.Errorf("version %s has the scope %q", v.Version, v.Scope)
		case v.Schema == nil || v.Schema.Type != "object":
			return fmt.Errorf("version %s has no schema of an object", v.Version)
		}
		versions = append(versions, v.Version)
	}
	return nil
}
