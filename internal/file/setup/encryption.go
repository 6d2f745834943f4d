package setup

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// flagEncryption begins the names of kcp's flags for the encryption of objects in etcd.
const flagEncryption = "--encryption-provider-config"

func defaultEncryption(e *v1alpha1.Encryption) {
	if e == nil {
		return
	}
	if len(e.Resources) == 0 {
		e.Resources = []string{"secrets"}
	}
	if e.KMS != nil {
		e.KMS.Name = cmp.Or(e.KMS.Name, "kms")
	}
}

// encryption checks which resources are encrypted. kcpctl must be able to list their objects on a shard, and for
// objects of bound APIs it would need the identity of the APIExport. A configuration of the user would replace ours.
func (v *validator) encryption() {
	e := v.setup.Spec.Encryption
	if e == nil {
		return
	}
	at := field.NewPath("spec", "encryption", "resources")
	for i, r := range e.Resources {
		oneOf(v.fields, at.Index(i), r, "secrets", "configmaps")
		v.unique(at.Index(i), r)
	}
	if e.KMS != nil {
		at := field.NewPath("spec", "encryption", "kms")
		v.name(at.Child("name"), e.KMS.Name)
		if !strings.HasPrefix(e.KMS.Endpoint, "unix:///") {
			v.invalid(at.Child("endpoint"), e.KMS.Endpoint,
				"not the socket of a KMS plugin, such as unix:///run/kms/kms.sock")
		}
	}
	v.noEncryptionArgs(field.NewPath("spec", "defaults"), v.setup.Spec.Defaults.ExtraArgs)
	for _, p := range v.parts {
		if p.kind.IsShard() {
			v.noEncryptionArgs(p.path, p.ExtraArgs)
		}
	}
}

func (v *fields) noEncryptionArgs(p *field.Path, args []string) {
	for i, arg := range args {
		if strings.HasPrefix(arg, flagEncryption) {
			v.forbidden(p.Child("extraArgs").Index(i), "spec.encryption sets %s: remove one of them", flagEncryption)
		}
	}
}
