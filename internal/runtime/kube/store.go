package kube

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// pkiPart is the part of the name of the Secret that holds the PKI.
const pkiPart = "pki"

// pkiSecretType is the type of that Secret.
const pkiSecretType = corev1.SecretType(v1alpha1.Group + "/pki")

// secretStore keeps a setup's PKI in a Secret of the home namespace that no pod mounts. Leaf certificates are in the
// Secrets that use them.
type secretStore struct {
	topology *topology.Topology
	clusters *clusters

	lock   parallel.Lock  // held while the Secret is saved
	loaded *corev1.Secret // nil until the Secret exists
}

// String names the Secret.
func (st *secretStore) String() string {
	return "Secret " + st.clusters.home.Namespace + "/" + st.topology.Object(pkiPart)
}

// Load returns the PKI, with the leaf certificates of all clusters.
func (st *secretStore) Load(ctx context.Context) (*pki.State, error) {
	home := st.clusters.home
	if err := home.Connect(ctx); err != nil {
		return nil, err
	}
	secret, err := home.Secret(ctx, st.topology.Object(pkiPart))
	if err != nil {
		return nil, err
	}
	state := &pki.State{CAs: map[topology.CA]pki.Authority{}}
	if secret != nil {
		if state, err = pki.Decode(secret.Data); err != nil {
			return nil, clierr.New(clierr.Failed,
				"restore the Secret from a backup: the keys of the authorities are only there",
				"read %s (%s): %w", st, home.Where(), err)
		}
	}
	if err := st.lock.Lock(ctx); err != nil {
		return nil, err
	}
	st.loaded = secret
	st.lock.Unlock()
	state.Leaves, err = st.leaves(ctx)
	return state, err
}

// leaves reads the certificates in the setup's Secrets.
func (st *secretStore) leaves(ctx context.Context) (map[pki.LeafKey]pki.Pair, error) {
	leaves := map[pki.LeafKey]pki.Pair{}
	var mu sync.Mutex
	err := st.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		list, err := cl.Resource(kind.Secret.GVR()).List(ctx, metav1.ListOptions{
			LabelSelector: selector(st.topology), FieldSelector: "type=" + string(corev1.SecretTypeTLS),
		})
		if err != nil {
			return cl.Explain(err, "list secrets")
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range list.Items {
			secret, err := cluster.ToSecret(&list.Items[i])
			if err != nil {
				return err
			}
			leaves[pki.LeafKey{Cluster: cl.Name, Secret: secret.Name}] = pki.Pair{
				Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey],
			}
		}
		return nil
	})
	return leaves, err
}

// Save saves the authorities and the service-account keys. It fails with pki.ErrChanged if the Secret has changed since
// Load.
func (st *secretStore) Save(ctx context.Context, state *pki.State) error {
	home := st.clusters.home
	if err := home.Connect(ctx); err != nil {
		return err
	}
	if err := st.lock.Lock(ctx); err != nil {
		return err
	}
	defer st.lock.Unlock()
	secret := home.NewSecret(st.topology.Name, st.topology.Object(pkiPart), pkiSecretType)
	if st.loaded != nil {
		secret = st.loaded.DeepCopy()
	}
	data := pki.Encode(state)
	if st.loaded != nil && maps.EqualFunc(data, secret.Data, slices.Equal) {
		return nil
	}
	secret.Data = data
	written, err := home.WriteSecret(ctx, secret)
	if retry.IsWriteConflict(err) {
		return clierr.New(clierr.Conflict, "rerun the command", "save %s (%s): %w", st, home.Where(), pki.ErrChanged)
	}
	if err != nil {
		return home.Explain(err, "save %s", st)
	}
	st.loaded = written
	return nil
}

// Forget has nothing to delete: certificates are in the Secrets that use them.
func (st *secretStore) DeleteLeaves(context.Context, []pki.LeafKey) error { return nil }
