package backup

import (
	"bytes"
	"context"

	"filippo.io/age"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Keys returns the PKI in a backup, without certificates, and the record of its installation.
func Keys(ctx context.Context, from archive.Target, m *archive.Manifest, with []age.Identity) (
	*pki.State, *record.Record, error) {
	if len(m.Recipients) == 0 {
		return nil, nil, clierr.New(clierr.Failed, "use a backup with keys: kcpctl backup list shows them",
			"backup %s has no keys", m.Name)
	}
	sealed, err := readFile(ctx, from, m, archive.FileKeys)
	if err != nil {
		return nil, nil, err
	}
	files, err := archive.Unseal(bytes.NewReader(sealed), with)
	if err != nil {
		return nil, nil, err
	}
	state, err := pki.Decode(files)
	if err != nil {
		return nil, nil, err
	}
	raw, err := readFile(ctx, from, m, archive.FileRecord)
	if err != nil {
		return nil, nil, err
	}
	known, err := record.Decode(raw)
	if err == nil {
		err = known.CheckAuthorities(state, "the backup")
	}
	return state, known, err
}

// readFile reads a small file of a backup, and verifies its digest.
func readFile(ctx context.Context, from archive.Target, m *archive.Manifest, name string) ([]byte, error) {
	var buf bytes.Buffer
	v := &Verify{Target: from}
	err := v.digest(ctx, m, name, &buf)
	return buf.Bytes(), err
}
