package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Storage describes the data of a component as the storage reports it, whatever the manifests say.
type Storage struct {
	// ClusterUID identifies the cluster. Empty: unknown, or this machine.
	ClusterUID string
	// Volumes are the IDs of the volumes that exist, by name, also of those that are being deleted. The ID of a data
	// directory of an earlier release is empty.
	Volumes map[string]string
	// Deleting are the names of volumes that disappear when pods no longer use them.
	Deleting []string
}

// On returns where a component holds its data, as the storage reports it.
func (d Data) On(s Storage) Data {
	d.ClusterUID = s.ClusterUID
	d.Volumes = s.Volumes
	d.Deleting = s.Deleting
	return d
}

// claimPrefix begins Data.Volume of a component with persistent volumes.
const claimPrefix = "PersistentVolumeClaim "

// Claim returns the name of the PersistentVolumeClaim of a component, or the prefix of the names of its members'
// claims. Both are empty if there is no claim.
func (d Data) Claim() (name, prefix string) {
	claim, ok := strings.CutPrefix(d.Volume, claimPrefix)
	if !ok {
		return "", ""
	}
	if prefix, ok := strings.CutSuffix(claim, "*"); ok {
		return "", prefix
	}
	return claim, ""
}

// Uses reports whether the component uses a PersistentVolumeClaim of its namespace.
func (d Data) Uses(claim string) bool {
	name, prefix := d.Claim()
	if prefix == "" {
		return name != "" && name == claim
	}
	number, ok := strings.CutPrefix(claim, prefix)
	member, err := strconv.ParseInt(number, 10, 64)
	return ok && err == nil && member < d.Members
}

// noun names a volume in a message.
func (d Data) noun(volume string) string {
	if d.Cluster == "" {
		return "directory " + volume
	}
	return claimPrefix + volume
}

// lost refuses to start a component whose recorded volumes are gone, or are others.
func lost(id topology.ID, was, now Data) problem {
	var all, pods []string
	intact := 0
	for _, name := range slices.Sorted(maps.Keys(was.Volumes)) {
		id, found := now.Volumes[name]
		_, pod, _ := strings.Cut(name, "-") // the claim is called after the volume and the pod
		pods = append(pods, pod)
		switch recorded := was.Volumes[name]; {
		case !found:
			all = append(all, fmt.Sprintf("%s (%s), which does not exist", was.noun(name), recorded))
		case recorded != "" && recorded != id:
			all = append(all, fmt.Sprintf("%s (%s), which is another one now (%s)", was.noun(name),
				recorded, orUnknown(id)))
		case slices.Contains(now.Deleting, name):
			all = append(all, fmt.Sprintf("%s (%s), which is being deleted", was.noun(name), recorded))
		default:
			pods = pods[:len(pods)-1]
			intact++
		}
	}
	if len(all) == 0 {
		return problem{}
	}
	p := problem{
		message: fmt.Sprintf("%s has its data on %s: it would start without its data", id,
			strings.Join(all, " and on ")),
		hint: "restore the volume with its data, or a backup (kcpctl restore); data that was restored to " +
			"another volume counts as moved",
		allowable: true,
	}
	if members := len(was.Volumes); members > 1 && intact > members/2 {
		p.hint = fmt.Sprintf("the other members have the data: kcpctl etcd replace-member %s, or restore the volume",
			strings.Join(pods, ", and kcpctl etcd replace-member "))
	}
	return p
}

func orUnknown(id string) string {
	if id == "" {
		return "without an ID"
	}
	return id
}

// found refuses to start a component without a record on volumes that exist.
func found(id topology.ID, now Data) problem {
	if len(now.Volumes) == 0 {
		return problem{}
	}
	return problem{
		message: fmt.Sprintf("%s is not in the record of the installation, and finds data on %s (%s): "+
			"it would start with data of another time", id, now.Place(), now.volumes()),
		hint:      "restore the record of the installation, or delete the volumes if their data is not needed",
		allowable: true,
	}
}

// unused refuses to leave volumes that the setup does not use.
func unused(id topology.ID, has Data) problem {
	return problem{
		message: fmt.Sprintf("%s has volumes on %s (%s), the installation has no record, and the setup does not "+
			"use them: it would start without their data", id, has.Place(), has.volumes()),
		hint: "restore the record of the installation, or use the setup file that made the volumes, or delete " +
			"them if their data is not needed",
		allowable: true,
	}
}

// volumes lists the volumes with their IDs.
func (d Data) volumes() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.Volumes)) {
		all = append(all, fmt.Sprintf("%s (%s)", d.noun(name), orUnknown(d.Volumes[name])))
	}
	return strings.Join(all, ", ")
}

// replaced refuses to start a component on another cluster of the same name.
func replaced(id topology.ID, was, now Data) problem {
	if was.ClusterUID == "" || now.ClusterUID == "" || was.ClusterUID == now.ClusterUID {
		return problem{}
	}
	return problem{
		message: fmt.Sprintf("%s is on %s of the cluster with UID %s, and %s is now the cluster with UID %s: "+
			"it would start without its data", id, was.Place(), was.ClusterUID, was.Cluster, now.ClusterUID),
		hint: "choose the context of the previous cluster, or restore a backup to this one " +
			"(kcpctl restore " + risk.OtherCluster.Flag() + ")",
		allowable: true,
	}
}

// keeps returns the data with the earlier details of its storage, if no newer ones are known. Volumes that are empty
// but not nil are known to be lost.
func (d Data) keeps(was Data) Data {
	if d.Place() != was.Place() {
		return d
	}
	if d.ClusterUID == "" {
		d.ClusterUID = was.ClusterUID
	}
	if d.Volumes == nil && d.Volume == was.Volume && d.Etcd == was.Etcd && d.ClusterUID == was.ClusterUID {
		d.Volumes = was.Volumes
	}
	if d.Release == "" {
		d.Release = was.Release
	}
	return d
}

// SetVolumes records the volumes of components, as they are after a run.
func (r *Record) SetVolumes(all map[topology.ID]Storage) {
	for id, s := range all {
		d, ok := r.Data[id]
		if !ok {
			continue
		}
		d.Volumes = s.Volumes
		d.ClusterUID = cmp.Or(s.ClusterUID, d.ClusterUID)
		r.Data[id] = d
	}
}
