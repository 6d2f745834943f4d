package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AuthenticationMode is where kcp authenticates the tokens of clients.
type AuthenticationMode string

const (
	// AuthenticationModeEdge authenticates them at front-proxies, which pass the identity on to shards.
	AuthenticationModeEdge AuthenticationMode = "Edge"
	// AuthenticationModeEverywhere authenticates them at front-proxies and at shards.
	AuthenticationModeEverywhere AuthenticationMode = "Everywhere"
)

// Authentication configures how kcp authenticates its clients.
type Authentication struct {
	// Mode is where tokens are authenticated: Edge is at front-proxies, Everywhere is at front-proxies and shards. With
	// Everywhere, the tokens are also valid at the URLs of shards and of virtual workspaces. Default: Edge.
	Mode AuthenticationMode `json:"mode,omitempty"`
	// Anonymous accepts requests without credentials on shards, as the user system:anonymous. If it is false, only
	// /healthz, /livez and /readyz need no credentials. Requests to front-proxies need them in any case. Default: true.
	Anonymous                *bool `json:"anonymous,omitempty"`
	FrontProxyAuthentication `json:",inline"`
}

// FrontProxyAuthentication configures how front-proxies authenticate their clients. Fields of a front-proxy take
// precedence over the fields of spec.authentication. Its groups are added to the groups there.
type FrontProxyAuthentication struct {
	// None passes all requests on without an identity, so that shards authenticate their tokens. No other field can be
	// set.
	None bool `json:"none,omitempty"`
	// ClientCertificates accepts the client certificates of the setup. At least one front-proxy must accept them,
	// because shards dial it. Shards accept them in any case. Default: true.
	ClientCertificates  *bool `json:"clientCertificates,omitempty"`
	TokenAuthentication `json:",inline"`
	// ServiceAccounts accepts the tokens of service accounts of this kcp. Without it, a front-proxy that authenticates
	// other tokens refuses them, and any other front-proxy passes them on to shards. Default: true if the front-proxy
	// authenticates other tokens.
	ServiceAccounts *bool `json:"serviceAccounts,omitempty"`
	// DropGroups are groups that front-proxies remove from the identity of a client, in addition to those that kcp
	// always removes, such as system:masters. A trailing * matches any suffix.
	DropGroups []string `json:"dropGroups,omitempty"`
	// PassOnGroups are the only groups that front-proxies do not remove, in addition to those that the setup itself
	// needs, such as system:authenticated. A trailing * matches any suffix. Default: all groups.
	PassOnGroups []string `json:"passOnGroups,omitempty"`
}

// TokenAuthentication configures how tokens are authenticated. A front-proxy that has oidc or config ignores both in
// spec.authentication.
type TokenAuthentication struct {
	// OIDC accepts the tokens of an OpenID Connect issuer. Use config for several issuers.
	OIDC *OIDC `json:"oidc,omitempty"`
	// Config accepts the tokens of any number of issuers. It cannot be combined with oidc.
	Config *AuthenticationConfig `json:"config,omitempty"`
	// Webhook asks a server about tokens.
	Webhook *AuthenticationWebhook `json:"webhook,omitempty"`
	// TokenFile accepts the tokens in a file, with lines of the form token,user,uid,"group1,group2". Default of the
	// key: tokens.csv.
	TokenFile *SecretKey `json:"tokenFile,omitempty"`
}

// OIDC is an OpenID Connect issuer, with the settings of kcp's flags --oidc-*.
type OIDC struct {
	// IssuerURL is the https URL of the issuer, exactly as in the claim iss of its tokens.
	IssuerURL string `json:"issuerURL"`
	// ClientID is the client for which the issuer must have issued tokens (the claim aud).
	ClientID string `json:"clientID"`
	// UsernameClaim is the claim with the name of the user. Default: sub.
	UsernameClaim string `json:"usernameClaim,omitempty"`
	// UsernamePrefix is put before names of users. The value - means none. Default: the issuer URL and #, but none for
	// the claim email.
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// GroupsClaim is the claim with the groups of the user. Without it, users are in no groups of the issuer.
	GroupsClaim string `json:"groupsClaim,omitempty"`
	// GroupsPrefix is put before names of groups. Without it, the issuer can put users into any group that
	// front-proxies do not drop.
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
	// SigningAlgs are the accepted algorithms of signatures, such as RS256 or ES256. Default: RS256.
	SigningAlgs []string `json:"signingAlgs,omitempty"`
	// RequiredClaims are claims that tokens must have, and their values.
	RequiredClaims map[string]string `json:"requiredClaims,omitempty"`
	// CA are the certificates of the authorities that the issuer's certificate is verified with, in PEM format.
	// Default: the authorities of the system.
	CA string `json:"ca,omitempty"`
	// CAFrom is a Secret or ConfigMap with these certificates, instead of ca. Default of the key: ca.crt.
	CAFrom *KeyReference `json:"caFrom,omitempty"`
	// Scopes are the scopes that kcpctl kubeconfig --oidc requests at login, besides openid. Default: email or profile,
	// if the user name is one of their claims, and groups, if groupsClaim is groups.
	Scopes []string `json:"scopes,omitempty"`
}

// AuthenticationConfig is the list jwt of a Kubernetes AuthenticationConfiguration. kcp compiles the CEL expressions
// when it starts.
type AuthenticationConfig struct {
	// JWT are the issuers.
	JWT []JWTAuthenticator `json:"jwt"`
}

// JWTAuthenticator accepts the tokens of an issuer.
type JWTAuthenticator struct {
	// Issuer is the issuer of the tokens.
	Issuer Issuer `json:"issuer"`
	// ClaimValidationRules are conditions that the claims of a token must meet.
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`
	// ClaimMappings turn claims into the identity of a user.
	ClaimMappings ClaimMappings `json:"claimMappings"`
	// UserValidationRules are conditions that the identity must meet.
	UserValidationRules []UserValidationRule `json:"userValidationRules,omitempty"`
}

// Issuer is an OpenID Connect issuer.
type Issuer struct {
	// URL is the https URL of the issuer, exactly as in the claim iss of its tokens.
	URL string `json:"url"`
	// DiscoveryURL is where its discovery document is, if not at the URL with /.well-known/openid-configuration.
	DiscoveryURL string `json:"discoveryURL,omitempty"`
	// CertificateAuthority are the certificates of the authorities that the issuer's certificate is verified with, in
	// PEM format. Default: the authorities of the system.
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// Audiences are the clients for which the issuer must have issued tokens (the claim aud): one of them is enough.
	Audiences []string `json:"audiences"`
	// AudienceMatchPolicy is MatchAny, which several audiences require.
	AudienceMatchPolicy string `json:"audienceMatchPolicy,omitempty"`
}

// ClaimValidationRule is either a claim with a required value, or a CEL expression over claims.
type ClaimValidationRule struct {
	// Claim is the name of a claim.
	Claim string `json:"claim,omitempty"`
	// RequiredValue is its value.
	RequiredValue string `json:"requiredValue,omitempty"`
	// Expression is a CEL expression that must be true.
	Expression string `json:"expression,omitempty"`
	// Message is the error if the expression is false.
	Message string `json:"message,omitempty"`
}

// ClaimMappings turn claims into the identity of a user.
type ClaimMappings struct {
	// Username is the name of the user.
	Username PrefixedClaim `json:"username"`
	// Groups are the groups of the user.
	Groups *PrefixedClaim `json:"groups,omitempty"`
	// UID is the unique ID of the user.
	UID *ClaimOrExpression `json:"uid,omitempty"`
	// Extra are more attributes of the user.
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaim is either a claim with a prefix, or a CEL expression over claims.
type PrefixedClaim struct {
	// Claim is the name of a claim.
	Claim string `json:"claim,omitempty"`
	// Prefix is put before the value of the claim. It is required with a claim, and can be empty.
	Prefix *string `json:"prefix,omitempty"`
	// Expression is a CEL expression with the value.
	Expression string `json:"expression,omitempty"`
}

// ClaimOrExpression is either a claim or a CEL expression over claims.
type ClaimOrExpression struct {
	// Claim is the name of a claim.
	Claim string `json:"claim,omitempty"`
	// Expression is a CEL expression with the value.
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping is an attribute of a user.
type ExtraMapping struct {
	// Key is a lower-case name with a domain, such as example.com/tenant.
	Key string `json:"key"`
	// ValueExpression is a CEL expression with the value.
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is a CEL expression over the identity of a user.
type UserValidationRule struct {
	// Expression must be true.
	Expression string `json:"expression"`
	// Message is the error if the expression is false.
	Message string `json:"message,omitempty"`
}

// AuthenticationWebhook is a server that implements the TokenReview API.
type AuthenticationWebhook struct {
	// SecretKey is the kubeconfig of the server, without references to files. Default of the key: kubeconfig.
	SecretKey `json:",inline"`
	// Version is the version of the TokenReview API: v1 or v1beta1. Default: v1.
	Version string `json:"version,omitempty"`
	// CacheTTL is how long answers are cached. Default: 2m.
	CacheTTL metav1.Duration `json:"cacheTTL,omitzero"`
}

// SecretKey is a key of a Secret in the namespaces of all components that use it.
type SecretKey struct {
	// Secret is the name of the Secret.
	Secret string `json:"secret"`
	// Key is the key in the Secret.
	Key string `json:"key,omitempty"`
}

// KeyReference is a key of a Secret or of a ConfigMap in the namespaces of all components that use it.
type KeyReference struct {
	// Secret is the name of a Secret.
	Secret string `json:"secret,omitempty"`
	// ConfigMap is the name of a ConfigMap.
	ConfigMap string `json:"configMap,omitempty"`
	// Key is the key in it.
	Key string `json:"key,omitempty"`
}

// IsZero reports whether nothing is set.
func (a FrontProxyAuthentication) IsZero() bool {
	return !a.None && a.ClientCertificates == nil && a.TokenAuthentication == (TokenAuthentication{}) &&
		a.ServiceAccounts == nil &&
		len(a.DropGroups) == 0 && len(a.PassOnGroups) == 0
}

// IsZero reports whether nothing is set.
func (a Authentication) IsZero() bool {
	return a.Mode == "" && a.Anonymous == nil && a.FrontProxyAuthentication.IsZero()
}
