package model_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
)

// authorities checks the certificates that an object presents and trusts.
func (w *world) authorities(s *command, i *installation, live, next *unstructured.Unstructured) {
	data, _, _ := unstructured.NestedStringMap(next.Object, "data")
	before := map[string]string{}
	if live != nil {
		before, _, _ = unstructured.NestedStringMap(live.Object, "data")
	}
	decode := func(v string) string {
		raw, _ := base64.StdEncoding.DecodeString(v)
		return string(raw)
	}
	kind, _, _ := unstructured.NestedString(next.Object, "type")
	switch {
	case next.GetKind() == "Secret" && next.GetName() == s.setup+"-pki":
		encoded := map[string][]byte{}
		for k, v := range data {
			encoded[k] = []byte(decode(v))
		}
		if state, err := pki.Decode(encoded); err == nil {
			w.saved(s, state)
		}
	case kind == "kubernetes.io/tls" && data["tls.crt"] != before["tls.crt"]:
		w.signed(s, i, next.GetName(), decode(data["tls.crt"]))
		w.renewed(s, next.GetName(), decode(before["tls.crt"]), decode(data["tls.crt"]))
	case next.GetKind() == "ConfigMap" && next.GetName() == s.setup+"-ca":
		for name, bundle := range data {
			w.trusted(s, i, name, before[name], bundle)
		}
	case next.GetName() == s.setup+"-inventory":
		w.decided(s, i, decode(before["installation.json"]), decode(data["installation.json"]))
	case next.GetName() == s.setup+"-service-account":
		w.trusted(s, i, "service-account", decode(before["sa.pub"]), decode(data["sa.pub"]))
	}
}

// fingerprints returns the fingerprints of PEM blocks.
func fingerprints(text string) []string {
	var out []string
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		sum := sha256.Sum256(block.Bytes)
		out = append(out, "sha256:"+hex.EncodeToString(sum[:]))
	}
	return out
}

// keyIDs returns the key IDs of certificates, by their fingerprints.
func keyIDs(text string) map[string]string {
	out := map[string]string{}
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out[fingerprints(string(pem.EncodeToMemory(block)))[0]] = hex.EncodeToString(cert.SubjectKeyId)
		}
	}
	return out
}

// saved records the authorities that a command has stored, if it may change them.
func (w *world) saved(s *command, state *pki.State) {
	if !s.mayRotate() {
		return
	}
	have := map[string]bool{}
	for ca, a := range state.CAs {
		for _, f := range fingerprints(string(a.Trusted())) {
			have[string(ca)+" "+f] = true
		}
		for f, id := range keyIDs(string(a.Cert) + string(a.Next.Cert)) {
			w.keys[f] = id
		}
	}
	for _, f := range fingerprints(string(state.ServiceAccount.Public)) {
		have["service-account "+f] = true
	}
	w.installation(s.home).accept(have, w.keys)
}

// decided records what a command writes in the record because its flags allow it: authorities, and components that
// leave their data. Any command may complete it, also if this one ends before it has stored or applied anything.
func (w *world) decided(s *command, i *installation, before, after string) {
	was, errWas := record.Decode([]byte(before))
	is, errIs := record.Decode([]byte(after))
	if err := errors.Join(errWas, errIs); err != nil {
		w.violate("the record: %v", err)
		return
	}
	have := map[string]bool{}
	for key, all := range is.Authorities {
		name := strings.TrimSuffix(strings.TrimSuffix(key, "-ca"), "-key")
		for _, f := range all.All() {
			have[name+" "+f] = true
		}
	}
	maps.Copy(i.recorded, have)
	if s.mayRotate() {
		i.accept(have, w.keys)
	}
	for id, data := range was.Data {
		if now, ok := is.Data[id]; (!ok || !reflect.DeepEqual(now, data)) && s.mayLose(ownerOf(id)) {
			i.leaving[ownerOf(id)] = true
		}
	}
}

// accept makes authorities those that are wanted: any command may complete what was begun. have are their names and
// fingerprints, keys the IDs of keys by fingerprint.
func (i *installation) accept(have map[string]bool, keys map[string]string) {
	for f := range i.known {
		if !have[f] && !strings.HasPrefix(f, "key ") {
			i.droppable[f] = true
		}
	}
	for f := range have {
		_, fingerprint, _ := strings.Cut(f, " ")
		i.known[f] = true
		delete(i.dropped, f)
		if id, ok := keys[fingerprint]; ok { // it may sign too
			i.known["key "+id] = true
			delete(i.retired, id)
		}
	}
}

// signed checks a new certificate in a Secret.
func (w *world) signed(s *command, i *installation, name, text string) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.violate("%s: %v", name, err)
		return
	}
	ca, by := cert.Issuer.CommonName, hex.EncodeToString(cert.AuthorityKeyId)
	was := i.signs[ca]
	switch {
	case was == by:
	case was == "", s.mayRotate():
		delete(i.retired, by)
	case i.retired[by] && !s.mayReturn():
		w.violate("%s is signed by a %s that was replaced", name, ca)
	case i.known["key "+by]:
	default:
		w.violate("%s is signed by another %s", name, ca)
	}
	if was != by && was != "" {
		i.retired[was] = true
	}
	i.signs[ca] = by
}

// renewed checks that a certificate is not replaced by an older one, with a key that may have been stolen.
func (w *world) renewed(s *command, name, before, after string) {
	was, is := startOf(before), startOf(after)
	if is.Before(was) && !s.has("--replace-authorities") {
		w.violate("%s of %s is replaced by one of %s", name, was.Format(time.RFC3339), is.Format(time.RFC3339))
	}
}

// startOf returns the start of the validity of the first of some certificates; zero if there is none.
func startOf(text string) time.Time {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotBefore
}

// trusted checks a bundle.
func (w *world) trusted(s *command, i *installation, name, before, bundle string) {
	prefix := strings.TrimSuffix(name, ".crt") + " "
	if i.adopters[prefix] == nil {
		i.adopters[prefix] = s
	}
	was, is := fingerprints(before), fingerprints(bundle)
	maps.Copy(w.keys, keyIDs(bundle))
	for _, f := range is {
		switch f = prefix + f; {
		case s == i.adopters[prefix], s.mayRotate(), i.known[f] && s.mayReturn():
			i.known[f] = true
			delete(i.dropped, f)
			id := w.keys[strings.TrimPrefix(f, prefix)] // it may sign too
			i.known["key "+id] = true
			delete(i.retired, id)
		case !i.known[f]:
			w.violate("everybody trusts another %sauthority", prefix)
		case i.dropped[f]:
			w.violate("everybody trusts again a %sauthority that was dropped", prefix)
		}
	}
	for _, f := range was {
		if slices.Contains(is, f) {
			continue
		}
		f = prefix + f
		if !i.recorded[f] {
			continue // a run for some components was a step of a rotation ahead: the authority has signed nothing
		}
		if !s.mayRotate() && !i.droppable[f] {
			w.violate("an authority is not trusted any more (%s)", prefix)
		}
		i.dropped[f] = true
	}
}
