package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Recipients parses public keys of age, such as age1….
func Recipients(keys []string) ([]age.Recipient, error) {
	var out []age.Recipient
	for _, key := range keys {
		r, err := age.ParseX25519Recipient(key)
		if err != nil {
			return nil, clierr.New(clierr.BadInput, "age-keygen creates a key, and prints its public key: age1…",
				"recipient %q: %w", key, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Seal encrypts files to recipients, as a tar.
func Seal(w io.Writer, files map[string][]byte, to []age.Recipient, at time.Time) error {
	sealed, err := age.Encrypt(w, to...)
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	t := tar.NewWriter(sealed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name])), ModTime: at}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(files[name]); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), sealed.Close())
}

// maxKeys is the largest size of a PKI, in bytes.
const maxKeys = 64 << 20

// Unseal decrypts files.
func Unseal(r io.Reader, with []age.Identity) (map[string][]byte, error) {
	opened, err := age.Decrypt(r, with...)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, clierr.New(clierr.BadInput,
			"name the file with the private key of one of the recipients with --identity",
			"the keys of the backup are encrypted to other recipients")
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt the keys: %w: %w", ErrDamaged, err)
	}
	out := map[string][]byte{}
	for t := tar.NewReader(io.LimitReader(opened, maxKeys)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decrypt the keys: %w: %w", ErrDamaged, err)
		}
		if out[h.Name], err = io.ReadAll(t); err != nil {
			return nil, fmt.Errorf("decrypt the keys: %w: %w", ErrDamaged, err)
		}
	}
}

// Identities reads private keys of age from a file.
func Identities(path string) ([]age.Identity, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, clierr.New(clierr.BadInput, "", "read the identity: %w", err)
	}
	out, err := age.ParseIdentities(bytes.NewReader(raw))
	if err != nil {
		return nil, clierr.New(clierr.BadInput, "age-keygen -o FILE creates one",
			"%s has no private key of age: %w", path, err)
	}
	return out, nil
}
