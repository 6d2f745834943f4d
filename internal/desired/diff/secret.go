package diff

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

// Mask replaces the values of a Secret's data: certificates with their subject, issuer, names and expiry, and
// everything else with asterisks.
func Mask(changes []Change) []Change {
	out := make([]Change, len(changes))
	for i, c := range changes {
		if strings.HasPrefix(c.Path, "data") || strings.HasPrefix(c.Path, "stringData") {
			c.Before, c.After = describe(c.Before), describe(c.After)
			if c.Before == c.After {
				c.Before, c.After = "*** (before)", "*** (after)"
			}
		}
		out[i] = c
	}
	return out
}

func describe(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		shown := map[string]any{}
		for k, e := range v {
			shown[k] = describe(e)
		}
		return shown
	}
	text := fmt.Sprint(v)
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(raw)
	}
	// A value that contains a private key is masked, even if it contains a certificate too.
	if strings.Contains(text, "PRIVATE KEY") || !strings.HasPrefix(text, "-----BEGIN CERTIFICATE") {
		return "***"
	}
	info, err := pki.Inspect([]byte(text))
	if err != nil {
		return "***"
	}
	subject := info.CN
	if len(info.Orgs) > 0 {
		subject += " (" + strings.Join(info.Orgs, ", ") + ")"
	}
	s := fmt.Sprintf("certificate %s, issued by %s, expires %s", subject, info.Issuer,
		info.NotAfter.UTC().Format(time.DateOnly))
	if len(info.SANs) > 0 {
		s += ", for " + strings.Join(info.SANs, " ")
	}
	return s
}
