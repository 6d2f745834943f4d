package splitter

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// otherNames are the ends of fields of a pod spec that look like the name of an object, and are none of the namespace.
var otherNames = []string{
	"schedulerName", "nodeName", "priorityClassName", "runtimeClassName", "clusterTrustBundle.name", "signerName",
	"storageClassName", "volumeAttributesClassName", // they are of the cluster
	"serviceAccountName", "serviceAccount", // see collector.pod
	"glusterfs.endpoints",                   // removed from Kubernetes
	"dataSource.name", "dataSourceRef.name", // the kind is not known
	"resourceClaims[].name", "claims[].name", "containerName", "fileKeyRef.volumeName", // parts of the pod
	"volumeName", "pdName", "diskName", "shareName", "datasetName", "storagePolicyName", "initiatorName", // storage
	"runAsUserName", "gmsaCredentialSpecName", "resourceName",
}

// A field that a release of Kubernetes adds is in one of the tables.
func TestReferencesAreThoseOfTheTypes(t *testing.T) {
	known := map[string]bool{}
	for _, r := range podReferences {
		known[r.path] = true
	}
	found := map[string]bool{}
	namesIn(reflect.TypeOf(corev1.PodSpec{}), "", found)
	for path := range found {
		other := slices.ContainsFunc(otherNames, func(end string) bool { return strings.HasSuffix("."+path, "."+end) })
		switch {
		case known[path], other:
		case strings.HasPrefix(path, "ephemeralContainers[]."): // templates cannot have them
		default:
			t.Errorf("%s is in no table", path)
		}
	}
	for path := range known {
		require.True(t, found[path], "a pod spec does not have %s", path)
	}
	require.Greater(t, len(found), 30)
}

// objectName are fields with the name of something besides the object that has them.
var objectName = regexp.MustCompile(`^[a-z].*Name$|^(serviceAccount|endpoints|subdomain)$`)

// namesIn finds the fields of a type that have the name of an object: by their own name, or as the name of a reference.
func namesIn(of reflect.Type, path string, found map[string]bool) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at, is := path, field.Type
		if name != "" {
			at = strings.TrimPrefix(path+"."+name, ".")
		}
		for is.Kind() == reflect.Pointer || is.Kind() == reflect.Slice {
			if is.Kind() == reflect.Slice {
				at += "[]"
			}
			is = is.Elem()
		}
		refers := regexp.MustCompile(`(Ref|Source|Reference|Selector|Projection|Claim)$`).MatchString(of.Name())
		switch {
		case is.Kind() == reflect.Struct && is.PkgPath() == of.PkgPath():
			namesIn(is, at, found)
		case is.Kind() != reflect.String:
		case objectName.MatchString(name) || name == "name" && refers:
			found[at] = true
		}
	}
}
