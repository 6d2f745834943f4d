package syncer

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// systemNamespace exists in every cluster from the start. Its UID identifies the cluster.
const systemNamespace = "kube-system"

// examineInterval is the time between two looks for objects of other setups.
const examineInterval = 5 * time.Minute

// identify reads which cluster this is, and whether it has objects of these workspaces under the ID of another setup. If it is another cluster than
// the Cluster was made for, or if the workspaces run there already, nothing is written to it.
func (s *syncer) identify(ctx context.Context) {
	before := s.blocked()
	err := s.examine(ctx)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot read the identity of the cluster, retrying")
		return
	}
	now := s.blocked()
	if before == nil || now != nil {
		return
	}
	s.mu.Lock()
	resources := s.resources
	s.mu.Unlock()
	for _, r := range resources {
		s.again(r)
	}
}

func (s *syncer) examine(ctx context.Context) error {
	client, err := s.below(namespaces, "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	uid := s.physicalUID
	s.mu.Unlock()
	if uid == "" {
		ns, err := client.Get(ctx, systemNamespace, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read namespace %s of cluster %s: %w", systemNamespace, s.Cluster, err)
		}
		uid = ns.GetUID()
	}
	s.mu.Lock()
	s.physicalUID = uid
	due := s.Now().Sub(s.examined) >= examineInterval || s.otherSetup != ""
	s.mu.Unlock()
	if !due || !s.bound.Complete() {
		return nil
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: fmt.Sprintf("%s,%s!=%s", api.LabelSetup, api.LabelSetup, s.Setup)})
	if err != nil {
		return fmt.Errorf("list the namespaces of other setups in cluster %s: %w", s.Cluster, err)
	}
	bound, other := s.boundClaims(), ""
	for i := range list.Items {
		ns := &list.Items[i]
		if workspace := ns.GetLabels()[api.LabelWorkspace]; bound[workspace] != nil {
			other = fmt.Sprintf("namespace %s of cluster %s has objects of workspace %s under the ID %s of a setup, and this one is %s: they would run twice. "+
				"Use the same ID (kcpctl up keeps it in its record), or delete the namespace", ns.GetName(), s.Cluster, workspace, ns.GetLabels()[api.LabelSetup], s.Setup)
			break
		}
	}
	s.mu.Lock()
	s.otherSetup, s.examined = other, s.Now()
	s.mu.Unlock()
	return nil
}

// replaced returns why the physical cluster is not, or may not be, the one that the Cluster was registered for, or nil.
func (s *syncer) replaced() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.recorded == "" || s.recorded == s.physicalUID:
		return nil
	case s.physicalUID == "":
		return fmt.Errorf("the UID of cluster %s is not read yet", s.Cluster)
	}
	return fmt.Errorf("this is another physical cluster than Cluster %s was registered for: its UID is %s, and not %s", s.Cluster, s.physicalUID, s.recorded)
}

// blocked returns why nothing is written to the physical cluster, or nil.
func (s *syncer) blocked() error {
	if err := s.replaced(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.otherSetup != "" {
		return errors.New(s.otherSetup)
	}
	return nil
}
