package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// systemNamespace exists in every cluster from the start. Its UID identifies the cluster.
const systemNamespace = "kube-system"

// ReadUID returns the UID of the physical cluster that answers.
func ReadUID(ctx context.Context, physical *rest.Config) (types.UID, error) {
	client, err := dynamic.NewForConfig(physical)
	if err != nil {
		return "", fmt.Errorf("client for %s: %w", physical.Host, err)
	}
	ns, err := client.Resource(namespaces).Get(ctx, systemNamespace, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read namespace %s: %w", systemNamespace, err)
	}
	return ns.GetUID(), nil
}

// Identity is the identity of the physical cluster that answers. Another one can answer at the address of the first,
// with the same authorities and credentials, such as after a loss of its etcd.
type Identity struct {
	Physical *rest.Config
	// Changed is called when another UID was read. It must not block. Nil ignores it.
	Changed func()

	uid atomic.Value
}

// UID returns the UID that was read last. It is empty if none was.
func (i *Identity) UID() types.UID {
	uid, _ := i.uid.Load().(types.UID)
	return uid
}

func (i *Identity) read(ctx context.Context) error {
	uid, err := ReadUID(ctx, i.Physical)
	if err != nil {
		return err
	}
	if i.uid.Swap(uid) != uid && i.Changed != nil {
		i.Changed()
	}
	return nil
}

// Confirm reads again which physical cluster answers, and fails unless a Cluster has its UID recorded.
func (i *Identity) Confirm(ctx context.Context, c *api.Cluster) error {
	if err := i.read(ctx); err != nil {
		return err
	}
	return i.differs(c)
}

// differs returns why the physical cluster is not, or may not be, the one that a Cluster was registered for, or nil.
func (i *Identity) differs(c *api.Cluster) error {
	switch uid := i.UID(); {
	case uid == "":
		return fmt.Errorf("the UID of cluster %s is not read yet", c.Name)
	case c.Status.UID == "":
		return fmt.Errorf("the status of Cluster %s has no UID yet: the controller records it", c.Name)
	case c.Status.UID == uid:
		return nil
	default:
		return fmt.Errorf("this is another physical cluster than Cluster %s was registered for: "+
			"its UID is %s, and not %s", c.Name, uid, c.Status.UID)
	}
}

// examineInterval is the time between two looks for objects of other setups.
const examineInterval = 5 * time.Minute

// member is the physical cluster: whether it may be written to.
type member struct {
	*view
	spaces *spaceIndex
	// waits reports whether leaves wait until the cluster may be written to.
	waits atomic.Bool

	// otherSetup is why the workspaces would run twice, and examined when that was looked at.
	otherSetup atomic.Value
	examined   time.Time
}

// twice returns why the workspaces would run twice, or "".
func (m *member) twice() string {
	other, _ := m.otherSetup.Load().(string)
	return other
}

// identify reads which cluster this is, and whether it has objects of these workspaces under the ID of another setup.
// If it is another cluster than the Cluster was made for, or if the workspaces run there already, nothing is written to
// it.
func (s *syncer) identify(ctx context.Context) {
	if err := s.member.examine(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot read the identity of the cluster, retrying")
		return
	}
	s.resume()
}

// resume syncs the leaves that waited until the cluster may be written to, if it may.
func (s *syncer) resume() {
	if s.member.blocked() == nil && s.member.waits.Swap(false) {
		s.again(namespaces)
	}
}

func (m *member) examine(ctx context.Context) error {
	client, err := m.below(namespaces, "")
	if err != nil {
		return err
	}
	due := m.Now().Sub(m.examined) >= examineInterval || m.twice() != ""
	if due || m.Identity.UID() == "" {
		if err := m.Identity.read(ctx); err != nil {
			return err
		}
	}
	if !due || !m.bound.Complete() {
		return nil
	}
	return m.examineOthers(ctx, client, "")
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
			other = fmt.Sprintf("namespace %s of cluster %s has objects of workspace %s under the ID %s of a setup, "+
				"and this one is %s: they would run twice. Delete the namespace if its workloads are not needed",
				ns.GetName(), m.Cluster, of, ns.GetLabels()[api.LabelSetup], m.Setup)
			break
		}
	}
	if workspace == "" {
		m.examined = m.Now()
	}
	if workspace == "" || other != "" {
		m.otherSetup.Store(other)
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
	c, seen := m.seen()
	if !seen {
		return fmt.Errorf("the Cluster %s is not read yet", m.Cluster)
	}
	return m.Identity.differs(&c)
}

// blocked returns why nothing is written to the physical cluster, or nil.
func (m *member) blocked() error {
	if err := m.replaced(); err != nil {
		return err
	}
	if other := m.twice(); other != "" {
		return errors.New(other)
	}
	return nil
}
