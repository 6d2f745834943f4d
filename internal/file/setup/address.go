package setup

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hostProblem says what is wrong with a DNS name or an IP address that clients dial. It is empty for a valid one.
func hostProblem(s string) string {
	labels := strings.Split(s, ".")
	wrong := len(s) - len(strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz0123456789.-"))
	switch {
	case s == "":
		return "must not be empty"
	case net.ParseIP(s) != nil:
		return ""
	case strings.Contains(s, "://"):
		return "must not have a scheme"
	case strings.Contains(s, "%"):
		return `must not have a zone, "%": it is one of this machine`
	case wrong < len(s):
		return characterProblem(s[wrong:])
	case strings.HasSuffix(s, "."):
		return "must not end with a dot"
	case slices.Contains(labels, ""):
		return "must not have an empty part before a dot"
	case isNumber(labels[len(labels)-1]):
		return "looks like an IPv4 address, and is none"
	}
	for _, l := range labels {
		if len(l) > maxLabel {
			return fmt.Sprintf("must have at most %d characters between dots, and %s… has %d", maxLabel, l[:8], len(l))
		}
		if strings.Trim(l, "-") != l {
			return `must not have a "-" at the beginning or the end of a part: ` + l
		}
	}
	if len(validation.IsDNS1123Subdomain(s)) > 0 {
		return fmt.Sprintf("must have at most %d characters", validation.DNS1123SubdomainMaxLength)
	}
	return ""
}

// isNumber reports whether the last part of a host makes it an IPv4 address, for example in browsers (WHATWG URL
// Standard, "ends in a number").
func isNumber(s string) bool {
	hex, isHex := strings.CutPrefix(s, "0x")
	return strings.Trim(s, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == ""
}

// characterProblem says what is wrong with the first character of the rest of a host.
func characterProblem(rest string) string {
	r := []rune(rest)[0]
	switch {
	case r == '[' || r == ']':
		return "must not have brackets, also not around an IPv6 address"
	case r == '*':
		return `must not have a wildcard, "*": clients dial this name`
	case r == ':':
		return "must not have a port: " + rest
	case r == '/':
		return "must not have a path: " + rest
	case unicode.IsUpper(r) && r <= unicode.MaxASCII:
		return fmt.Sprintf("must be lower case, and %q is not", string(r))
	case r > unicode.MaxASCII:
		return fmt.Sprintf("must have only ASCII characters, and %q is none: write the name with xn--", string(r))
	}
	return fmt.Sprintf("must not have the character %q", string(r))
}

func (v *fields) host(p *field.Path, s string) {
	if problem := hostProblem(s); problem != "" {
		v.invalid(p, s, "%s", problem)
	}
}

// urlProblem returns a URL, and says what is wrong with its scheme, its host or its port. It is empty for a valid one.
func urlProblem(s string, schemes ...string) (*url.URL, string) {
	begins := "must begin with " + strings.Join(schemes, ":// or ") + "://"
	scheme, _, found := strings.Cut(s, "://")
	if i := strings.IndexAny(s, ", ;\t\r\n"); i >= 0 {
		return nil, fmt.Sprintf("must be one URL, without %q", s[i:i+1])
	}
	if !found {
		return nil, begins
	}
	if !slices.Contains(schemes, scheme) {
		return nil, fmt.Sprintf("%s, not %s://", begins, scheme)
	}
	u, err := url.Parse(s)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		if strings.Count(s, ":") > 2 && !strings.Contains(s, "[") {
			return nil, "must have an IPv6 address in brackets, such as " + scheme + "://[fd00::1]:6443"
		}
		return nil, "must be a URL: " + err.Error()
	}
	if problem := hostProblem(u.Hostname()); problem != "" {
		return nil, "the host " + problem
	}
	if !isURLPort(u) {
		return nil, "the port must be between 1 and 65535"
	}
	return u, ""
}

// url requires scheme://host[:port] without anything else.
func (v *fields) url(p *field.Path, s string, schemes ...string) {
	u, problem := urlProblem(s, schemes...)
	switch {
	case problem != "":
		v.invalid(p, s, "%s", problem)
	case s != u.Scheme+"://"+u.Host:
		v.invalid(p, s, "must consist of scheme, host and port only")
	}
}

// endpoint requires the URL of a member of an etcd, which kcp only dials with a port.
func (v *fields) endpoint(p *field.Path, s string) {
	before := len(v.errs)
	v.url(p, s, "http", "https")
	if u, err := url.Parse(s); err == nil && u.Port() == "" && len(v.errs) == before {
		v.invalid(p, s, "must have a port, such as %s:2379", s)
	}
}

func isURLPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.Atoi(u.Port())
	return err == nil && len(validation.IsValidPortNum(n)) == 0
}

// file requires a path that does not begin with something that only a shell replaces.
func (v *fields) file(p *field.Path, s string) {
	if strings.HasPrefix(s, "~") || strings.HasPrefix(s, "$") {
		first, _, _ := strings.Cut(s, "/")
		v.invalid(p, s, "only a shell replaces %s: write the path of the directory", first)
	}
}
