package main

// The steps of models of an installation in which only some things happen.
const (
	storage   = "up,revert and up,down,rebuild cluster,lose namespace,lose claim,create workspace"
	secrets   = "up,revert and up,down,Secrets,PKI directories,renew,rotate"
	restored  = "revert and up,down,Secrets,rotate"
	encrypted = "up,revert and up,create workspace,PKI directories,edit encryption,rotate encryption"
)

// defects are mistakes in what an installation is compared with.
var defects = []defect{
	{
		name: "another cluster with the same name is the same", file: "internal/desired/record/compare.go",
		old:   "	if p := replaced(id, was, now); p.message != \"\" {\n		return p\n	}\n	return lost(id, was, now)\n",
		new:   "	return problem{}\n",
		steps: storage, says: " runs on store ",
	},
	{
		name: "volumes that are gone are made again", file: "internal/desired/record/compare.go",
		old: "	return lost(id, was, now)\n", new: "	return problem{}\n",
		steps: storage, says: " runs on store ",
	},
	{
		name: "volumes without a record are used", file: "internal/desired/record/compare.go",
		old: "			p = found(id, now)\n", new: "			p = problem{}\n",
		steps: "up,down,record away", says: "the record is lost, and volumes are there",
	},
	{
		name: "the authorities of kcp-operator are not compared", file: "internal/engine/run/deploy/inherit.go",
		old: "err != nil || g.Options.ReplaceAuthorities {", new: "err != nil || len(taken) > 0 {",
		steps: "up,down,predecessor", says: "kcp-operator has other authorities",
	},
	{
		name: "a restored record is the latest", file: "internal/desired/record/serial.go",
		old: "	if !r.Restored() {", new: "	if r != nil {",
		steps: restored, says: "authority",
	},
	{
		name: "a certificate is replaced by an older one", file: "internal/engine/run/deploy/trust.go",
		old: "		if old.Before(live) {", new: "		if old.Before(live) && old.After(live) {",
		steps: secrets, says: " is replaced by one of ",
	},
	{
		name: "what is added to a bundle is trusted", file: "internal/desired/record/authorities.go",
		old: "			add(f, \"its bundle has %s, which the installation does not know\")", new: "			continue",
		steps: "up,down,foreign authority", says: "a user has added an authority",
	},
	{
		name: "what a user trusts live is not compared", file: "internal/engine/run/deploy/trust.go",
		old:   "	if len(lines) == 0 {\n		return nil\n	}\n	var all []string\n",
		new:   "	if len(lines) >= 0 {\n		return nil\n	}\n	var all []string\n",
		steps: "up,down,foreign authority", says: "a user has added an authority",
	},
	{
		name: "a file is for any installation", file: "internal/desired/record/encode.go",
		old: "	if named == \"\" || r.Empty() || r.Installation == named {", new: "	if named == \"\" || named != \"\" {",
		steps: "up,down,wrong file", says: "the file is for another installation",
	},
	{
		name: "a lost record is a new installation", file: "internal/runtime/kube/installation.go",
		old: "			return i.lostRecord(s, here)", new: "			continue",
		steps: "up,edit,down,home away", says: "the record is lost",
	},
	{
		name: "a later format is written", file: "internal/kit/format/format.go",
		old: "	if s.MinWriter <= Number {", new: "	if s.MinWriter >= 0 {",
		steps: "up,down,later format", says: "a later kcpctl has written the installation",
	},
	{
		name: "fields of a later kcpctl are dropped", file: "internal/desired/record/encode.go",
		old: "raw, err = keep(previous, raw)", new: "_, err = keep(previous, raw)",
		steps: "up,down,later fields", says: "a later kcpctl has added a field",
	},
	{
		name: "an etcd gets an earlier image", file: "internal/engine/run/deploy/release.go",
		old: "if !release.Older(to, from) {", new: "if !release.Older(to, from) || release.Older(to, from) {",
		steps: "up,down,later etcd", says: "etcd v3.99.0 is replaced",
	}, {
		name: "an encryption key is removed before objects are written again", file: "internal/engine/run/deploy/encryption.go",
		old: "	if err := r.rewrite(ctx, state); err != nil {\n		return err\n	}\n", new: "",
		steps: encrypted, model: "TestEncryptedModel", says: "cannot read",
	},
	{
		name: "a lost encryption key is replaced", file: "internal/engine/run/deploy/trust.go",
		old: "		return r.CheckEncryption(loaded, p.Runtime.Store().String())\n", new: "		return nil\n",
		steps: encrypted + ",down", model: "TestEncryptedModel", says: "cannot read",
	},
}
