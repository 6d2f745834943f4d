package syncer

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// systemNamespace exists in every cluster from the start. Its UID identifies the cluster.
const systemNamespace = "kube-system"

// examineInterval is the time between two looks for objects of other setups.
const examineInterval = 5 * time.Minute

// identify reads which cluster this is, and whether it has objects of these workspaces under the ID of another setup.
// If it is another cluster than the Cluster was made for, or if the workspaces run there already, nothing is written to
// it.
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
	for _, r := range s.synced() {
		s.again(r)
	}
}

func (s *syncer) examine(ctx context.Context) error {
	client, err := s.below(namespaces, "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	known, due := s.physicalUID != "", s.Now().Sub(s.examined) >= examineInterval || s.otherSetup != ""
	s.mu.Unlock()
	if !known || due {
		if err := s.readUID(ctx, client); err != nil {
			return err
		}
	}
	if !due || !s.bound.Complete() {
		return nil
	}
	return s.examineOthers(ctx, client, "")
}

// readUID reads which physical cluster answers. Another one can answer at the address of the first, with the same
// authorities and credentials, such as after a loss of its etcd.
func (s *syncer) readUID(ctx context.Context, client dynamic.ResourceInterface) error {
	ns, err := client.Get(ctx, systemNamespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s of cluster %s: %w", systemNamespace, s.Cluster, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.physicalUID = ns.GetUID()
	return nil
}

// confirm reads again which physical cluster answers, if it is known which one should, and fails if it is another one.
func (s *syncer) confirm(ctx context.Context, client dynamic.ResourceInterface) error {
	s.mu.Lock()
	recorded := s.recorded
	s.mu.Unlock()
	if recorded == "" {
		return nil
	}
	if err := s.readUID(ctx, client); err != nil {
		return err
	}
	return s.replaced()
}

// examineOthers looks for namespaces of other setups: in all workspaces whose objects the syncer sees, or in one.
func (s *syncer) examineOthers(ctx context.Context, client dynamic.ResourceInterface, workspace string) error {
	selector := fmt.Sprintf("%s,%s!=%s", api.LabelSetup, api.LabelSetup, s.Setup)
	if workspace != "" {
		selector += "," + api.LabelWorkspace + "=" + workspace
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list the namespaces of other setups in cluster %s: %w", s.Cluster, err)
	}
	own, other := s.workspaces(), ""
	for i := range list.Items {
		ns := &list.Items[i]
		if of := ns.GetLabels()[api.LabelWorkspace]; own[of] || of == workspace && workspace != "" {
			other = fmt.Sprintf("namespace %s of cluster %s has objects of workspace %s under the ID %s of a setup, and this one is %s: they would run twice. "+
				"Delete the namespace if its workloads are not needed", ns.GetName(), s.Cluster, of,
				ns.GetLabels()[api.LabelSetup], s.Setup)
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if workspace == "" {
		s.otherSetup, s.examined = other, s.Now()
	} else if other != "" {
		s.otherSetup = other
	}
	return nil
}

// workspaces returns the logical clusters whose objects the syncer sees, or will see.
func (s *syncer) workspaces() map[string]bool {
	out := map[string]bool{}
	for workspace := range s.boundClaims() {
		out[workspace] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.spaces {
		out[at.cluster] = true
	}
	return out
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
	return fmt.Errorf("this is another physical cluster than Cluster %s was registered for: its UID is %s, and not %s",
		s.Cluster, s.physicalUID, s.recorded)
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
