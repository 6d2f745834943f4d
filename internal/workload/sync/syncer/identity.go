package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// systemNamespace exists in every cluster from the start. Its UID identifies the cluster.
const systemNamespace = "kube-system"

// examineInterval is the time between two looks for objects of other setups.
const examineInterval = 5 * time.Minute

// member is the physical cluster: which one answers, and whether it may be written to.
type member struct {
	*view
	spaces *spaceIndex

	mu sync.Mutex
	// physicalUID is the UID that it has. Empty: not known.
	physicalUID types.UID
	// otherSetup is why the workspaces would run twice, and examined when that was looked at.
	otherSetup string
	examined   time.Time
}

// twice returns why the workspaces would run twice, or "".
func (m *member) twice() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.otherSetup
}

// identify reads which cluster this is, and whether it has objects of these workspaces under the ID of another setup.
// If it is another cluster than the Cluster was made for, or if the workspaces run there already, nothing is written to
// it.
func (s *syncer) identify(ctx context.Context) {
	before := s.member.blocked()
	err := s.member.examine(ctx)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot read the identity of the cluster, retrying")
		return
	}
	now := s.member.blocked()
	if before == nil || now != nil {
		return
	}
	for _, r := range s.synced() {
		s.again(r)
	}
}

func (m *member) examine(ctx context.Context) error {
	client, err := m.below(namespaces, "")
	if err != nil {
		return err
	}
	m.mu.Lock()
	known, due := m.physicalUID != "", m.Now().Sub(m.examined) >= examineInterval || m.otherSetup != ""
	m.mu.Unlock()
	if !known || due {
		if err := m.readUID(ctx, client); err != nil {
			return err
		}
	}
	if !due || !m.bound.Complete() {
		return nil
	}
	return m.examineOthers(ctx, client, "")
}

// readUID reads which physical cluster answers. Another one can answer at the address of the first, with the same
// authorities and credentials, such as after a loss of its etcd.
func (m *member) readUID(ctx context.Context, client dynamic.ResourceInterface) error {
	ns, err := client.Get(ctx, systemNamespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s of cluster %s: %w", systemNamespace, m.Cluster, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.physicalUID = ns.GetUID()
	return nil
}

// confirm reads again which physical cluster answers, if it is known which one should, and fails if it is another one.
func (m *member) confirm(ctx context.Context, client dynamic.ResourceInterface) error {
	if c, _ := m.seen(); c.Status.UID == "" {
		return nil
	}
	if err := m.readUID(ctx, client); err != nil {
		return err
	}
	return m.replaced()
}

// examineOthers looks for namespaces of other setups: in all workspaces whose objects the syncer sees, or in one.
func (m *member) examineOthers(ctx context.Context, client dynamic.ResourceInterface, workspace string) error {
	selector := fmt.Sprintf("%s,%s!=%s", api.LabelSetup, api.LabelSetup, m.Setup)
	if workspace != "" {
		selector += "," + api.LabelWorkspace + "=" + workspace
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list the namespaces of other setups in cluster %s: %w", m.Cluster, err)
	}
	own, other := m.workspaces(), ""
	for i := range list.Items {
		ns := &list.Items[i]
		if of := ns.GetLabels()[api.LabelWorkspace]; own[of] || of == workspace && workspace != "" {
			other = fmt.Sprintf("namespace %s of cluster %s has objects of workspace %s under the ID %s of a setup, and this one is %s: they would run twice. "+
				"Delete the namespace if its workloads are not needed", ns.GetName(), m.Cluster, of,
				ns.GetLabels()[api.LabelSetup], m.Setup)
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if workspace == "" {
		m.otherSetup, m.examined = other, m.Now()
	} else if other != "" {
		m.otherSetup = other
	}
	return nil
}

// workspaces returns the logical clusters whose objects the syncer sees, or will see.
func (m *member) workspaces() map[string]bool {
	out := m.spaces.clusters()
	for workspace := range m.boundClaims() {
		out[workspace] = true
	}
	return out
}

// replaced returns why the physical cluster is not, or may not be, the one that the Cluster was registered for, or nil.
func (m *member) replaced() error {
	c, _ := m.seen()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.Status.UID == "" || c.Status.UID == m.physicalUID:
		return nil
	case m.physicalUID == "":
		return fmt.Errorf("the UID of cluster %s is not read yet", m.Cluster)
	}
	return fmt.Errorf("this is another physical cluster than Cluster %s was registered for: its UID is %s, and not %s",
		m.Cluster, m.physicalUID, c.Status.UID)
}

// blocked returns why nothing is written to the physical cluster, or nil.
func (m *member) blocked() error {
	if err := m.replaced(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.otherSetup != "" {
		return errors.New(m.otherSetup)
	}
	return nil
}
