package run

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// LoadInstallation reads the record of the installation and its PKI. It refuses a PKI that is not the installation's.
func LoadInstallation(ctx context.Context, rt Archive) (*record.Record, *pki.State, error) {
	known, err := rt.Record(ctx)
	if err == nil {
		err = known.CheckRestored()
	}
	if err != nil {
		return nil, nil, err
	}
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	return known, state, known.CheckAuthorities(state, rt.Store().String())
}

// RecordLost fails if an installation has objects and no record: the record was deleted, or an earlier kcpctl has made
// the installation. It returns nil if nothing is deployed.
func RecordLost(ctx context.Context, a Archive, setup string, known *record.Record) error {
	if !known.Empty() {
		return nil
	}
	objects, err := a.Objects(ctx)
	if err != nil || len(objects) == 0 {
		return err
	}
	return clierr.New(clierr.Failed,
		"run kcpctl up with the setup file that was applied last: it makes the record again from what runs; or "+
			"restore a backup with kcpctl restore; then rerun the command",
		"kcp %q is deployed (%s), and the record of its installation does not exist", setup,
		gather.Count(len(objects), "object", "objects"))
}
