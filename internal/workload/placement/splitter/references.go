package splitter

import "k8s.io/apimachinery/pkg/runtime/schema"

// reference is a field of a pod spec that has the name of an object in the namespace of the pod.
type reference struct {
	// path are the fields, with dots between them. A step that ends with [] is a list.
	path string
	schema.GroupResource
	// optional means that pods start without the object. Otherwise the field optional beside the name decides.
	optional bool
}

// podReferences are all references of a pod spec, besides the ServiceAccount. A test compares them with the types of
// Kubernetes.
var podReferences = []reference{
	{path: "imagePullSecrets[].name", GroupResource: secrets, optional: true}, // the kubelet pulls without it
	{path: "subdomain", GroupResource: services, optional: true},
	{path: "containers[].envFrom[].configMapRef.name", GroupResource: configMaps},
	{path: "containers[].envFrom[].secretRef.name", GroupResource: secrets},
	{path: "containers[].env[].valueFrom.configMapKeyRef.name", GroupResource: configMaps},
	{path: "containers[].env[].valueFrom.secretKeyRef.name", GroupResource: secrets},
	{path: "initContainers[].envFrom[].configMapRef.name", GroupResource: configMaps},
	{path: "initContainers[].envFrom[].secretRef.name", GroupResource: secrets},
	{path: "initContainers[].env[].valueFrom.configMapKeyRef.name", GroupResource: configMaps},
	{path: "initContainers[].env[].valueFrom.secretKeyRef.name", GroupResource: secrets},
	{path: "resourceClaims[].resourceClaimName", GroupResource: resourceClaims},
	{path: "resourceClaims[].resourceClaimTemplateName", GroupResource: resourceClaimTemplates},
	{path: "schedulingGroup.podGroupName", GroupResource: podGroups},
	{path: "volumes[].azureFile.secretName", GroupResource: secrets},
	{path: "volumes[].cephfs.secretRef.name", GroupResource: secrets},
	{path: "volumes[].cinder.secretRef.name", GroupResource: secrets},
	{path: "volumes[].configMap.name", GroupResource: configMaps},
	{path: "volumes[].csi.nodePublishSecretRef.name", GroupResource: secrets},
	{path: "volumes[].flexVolume.secretRef.name", GroupResource: secrets},
	{path: "volumes[].iscsi.secretRef.name", GroupResource: secrets},
	{path: "volumes[].persistentVolumeClaim.claimName", GroupResource: claims},
	{path: "volumes[].projected.sources[].configMap.name", GroupResource: configMaps},
	{path: "volumes[].projected.sources[].secret.name", GroupResource: secrets},
	{path: "volumes[].rbd.secretRef.name", GroupResource: secrets},
	{path: "volumes[].scaleIO.secretRef.name", GroupResource: secrets},
	{path: "volumes[].secret.secretName", GroupResource: secrets},
	{path: "volumes[].storageos.secretRef.name", GroupResource: secrets},
}
