package kube

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
)

// secretStore keeps a setup's PKI in a Secret of the home namespace that no pod mounts. Leaves are in the Secrets that use
// them.
type secretStore struct {
	r *Runtime

	mu     sync.Mutex
	loaded *corev1.Secret // nil until there is one
}

// String says where the PKI is.
func (st *secretStore) String() string {
	return "Secret " + st.r.home.Namespace + "/" + st.r.topology.Object(pkiPart)
}

// Load returns the PKI, with the leaves of all clusters.
func (st *secretStore) Load(ctx context.Context) (*pki.State, error) {
	ctx = quiet(ctx)
	if err := st.r.home.connect(ctx); err != nil {
		return nil, err
	}
	secret, err := st.r.home.secret(ctx, st.r.topology.Object(pkiPart))
	if err != nil {
		return nil, err
	}
	state := &pki.State{CAs: map[pki.CA]pki.Authority{}}
	if secret != nil {
		if state, err = pki.Decode(secret.Data); err != nil {
			return nil, clierr.New(clierr.Failed, "restore the Secret from a backup: the authorities' keys are nowhere else",
				"read %s (%s): %w", st, st.r.home.where(), err)
		}
	}
	st.mu.Lock()
	st.loaded = secret
	st.mu.Unlock()
	state.Leaves, err = st.leaves(ctx)
	return state, err
}

// leaves reads the certificates that the setup's Secrets hold.
func (st *secretStore) leaves(ctx context.Context) (map[pki.LeafKey]pki.Pair, error) {
	leaves := map[pki.LeafKey]pki.Pair{}
	var mu sync.Mutex
	err := st.r.each(ctx, func(ctx context.Context, s *site) error {
		list, err := s.resource(known("Secret").gvr()).List(ctx, metav1.ListOptions{
			LabelSelector: st.r.selector(), FieldSelector: "type=" + string(corev1.SecretTypeTLS),
		})
		if err != nil {
			return s.explain(err, "list secrets")
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range list.Items {
			secret, err := toSecret(&list.Items[i])
			if err != nil {
				return err
			}
			leaves[pki.LeafKey{Cluster: s.Name, Secret: secret.Name}] = pki.Pair{
				Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey],
			}
		}
		return nil
	})
	return leaves, err
}

// Save keeps the authorities and the service-account keys. It fails with pki.ErrChanged if the Secret is not as it was
// loaded.
func (st *secretStore) Save(ctx context.Context, state *pki.State) error {
	ctx = quiet(ctx)
	home := st.r.home
	if err := home.connect(ctx); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	secret := home.newSecret(st.r.topology.Name, st.r.topology.Object(pkiPart), typePKI)
	if st.loaded != nil {
		secret = st.loaded.DeepCopy()
	}
	data := pki.Encode(state)
	if st.loaded != nil && maps.EqualFunc(data, secret.Data, slices.Equal) {
		return nil
	}
	secret.Data = data
	written, err := home.writeSecret(ctx, secret)
	if isTaken(err) {
		return clierr.New(clierr.Conflict, "run the command again", "save %s (%s): %w", st, home.where(), pki.ErrChanged)
	}
	if err != nil {
		return home.explain(err, "save %s", st)
	}
	st.loaded = written
	return nil
}
