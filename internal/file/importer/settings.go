package importer

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

func authorizationRows() []row {
	const path, to = "spec.authorization.webhook.", "authorization.webhook."
	hook := (*object).authorizationWebhook
	return []row{
		mapped(path+"configSecretName", to+"secret", into(func(o *object) *string { return &hook(o).Secret })),
		mapped(path+"version", to+"version", into(func(o *object) *string { return &hook(o).Version })),
		mapped(path+"cacheAuthorizedTTL", to+"cacheAuthorizedTTL",
			into(func(o *object) *metav1.Duration { return &hook(o).CacheAuthorizedTTL })),
		mapped(path+"cacheUnauthorizedTTL", to+"cacheUnauthorizedTTL",
			into(func(o *object) *metav1.Duration { return &hook(o).CacheUnauthorizedTTL })),
		mapped(path+"allowPaths", "authorization.alwaysAllowPaths",
			into(func(o *object) *[]string { return &o.authorization().AlwaysAllowPaths })),
	}
}

func (o *object) authorization() *v1alpha1.Authorization {
	if o.authorize == nil {
		o.authorize = &v1alpha1.Authorization{}
	}
	return o.authorize
}

func (o *object) authorizationWebhook() *v1alpha1.AuthorizationWebhook {
	if o.authorization().Webhook == nil {
		o.authorize.Webhook = &v1alpha1.AuthorizationWebhook{}
	}
	return o.authorize.Webhook
}

// authorized returns the authorization of a shard, or nil if it is the default one.
func (o *object) authorized() *v1alpha1.Authorization {
	a := o.authorize
	if a == nil {
		return nil
	}
	if a.Webhook != nil && a.Webhook.Secret == "" {
		o.findAt("authorization.webhook.", "without configSecretName, kcp asks no webhook", "set authorization.webhook")
		a.Webhook = nil
	}
	if a.Webhook == nil && len(a.Order) == 0 && len(a.AlwaysAllowPaths) == 0 {
		return nil
	}
	if w := a.Webhook; w != nil {
		w.Version = cmp.Or(w.Version, defaultVersion)
	}
	return a
}

// setAuthorization sets the field that says the same as a flag about authorization.
func (o *object) setAuthorization(flag, text string) bool {
	ttl, errTTL := time.ParseDuration(text)
	switch flag {
	case "authorization-order":
		o.authorization().Order = strings.Split(text, ",")
	case "authorization-always-allow-paths":
		o.authorization().AlwaysAllowPaths = strings.Split(text, ",")
	case "authorization-webhook-version":
		o.authorizationWebhook().Version = text
	case "authorization-webhook-config-file":
		return o.secretOf(text, func() *v1alpha1.SecretKey { return &o.authorizationWebhook().SecretKey })
	case "authorization-webhook-cache-authorized-ttl":
		o.authorizationWebhook().CacheAuthorizedTTL.Duration = ttl
		return errTTL == nil
	case "authorization-webhook-cache-unauthorized-ttl":
		o.authorizationWebhook().CacheUnauthorizedTTL.Duration = ttl
		return errTTL == nil
	default:
		return false
	}
	return true
}

// secretOf sets the Secret that a file comes from. It reports false if it is not from a Secret.
func (o *object) secretOf(file string, to func() *v1alpha1.SecretKey) bool {
	from := o.mounted(file)
	if from.Secret == "" {
		return false
	}
	*to() = v1alpha1.SecretKey{Secret: from.Secret, Key: from.Key}
	return true
}

// setShared sets a field of the setup that says the same as a flag of the root shard.
func (o *object) setShared(flag, text string) bool {
	if o.kind == kindShard {
		return false
	}
	switch flag {
	case "enable-home-workspaces":
		on, err := strconv.ParseBool(text)
		o.home.Enabled = &on
		return err == nil
	case "home-workspaces-home-creator-groups":
		o.home.CreatorGroups = groups(text)
	case "batteries-included":
		return o.setBatteries(groups(text))
	}
	return true
}

// setBatteries sets the batteries that a setup can have. It reports whether these are all.
func (o *object) setBatteries(all []string) bool {
	o.batteries = slices.DeleteFunc(slices.Clone(all), func(b string) bool { return b == "admin" || b == "user" })
	dropped := len(all) - len(o.batteries)
	if slices.Equal(o.batteries, []string{"workspace-types"}) {
		o.batteries = nil // the default
	}
	return dropped == 0
}

// setProfiler sets the port of a profiler that only its own pod reaches.
func (o *object) setProfiler(address string) bool {
	host, text, err := net.SplitHostPort(address)
	port, errPort := strconv.ParseInt(text, 10, 32)
	if err != nil || errPort != nil || host != "localhost" && host != "127.0.0.1" {
		return false
	}
	o.component.ProfilerPort = int32(port)
	return true
}
