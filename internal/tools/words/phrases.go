package main

import "regexp"

// phrases read as translated. kubectl, kubeadm, etcd and the Kubernetes documentation do not use them.
var phrases = []phrase{
	// Functions and messages.
	not(`tells? (whether|if)|says? whether|looks? whether|reports whether or not`, `"reports whether"`),
	not(`(tells?|says?) (why|who)|says? so`, `"reports the reason", "shows", "with a message"`),
	not(`looks? what`, `"checks", "lists"`),
	not(`is no [a-z]+`, `"is not a", "invalid"`),
	not(`that what|such a one|those of them|of which a|at (most|least) one of them which`, `two short sentences`),
	not(`stop working that`, `the clause next to its noun`),

	// Subjects.
	not(`nobody|somebody|whoever|whomever|people`, `the subject: users, clients, components, processes; or a passive`),
	not(`who (wants|asks|has|reads|calls|needs)`, `the subject: users, clients, components, processes`),
	not(`strangers?`, `"other owner", "unknown"`),

	// Time.
	not(`anew`, `"again"`),
	not(`goes on (to|with)|go on (to|with)|gone on|it goes on|serves? on`, `"continue", "keep serving"`),
	not(`again and again`, `"repeatedly", "retries"`),
	not(`the former|former ones?|former`, `"previous"`),
	not(`present one`, `"current one"`),
	not(`is over( soon)?`, `"has ended"`),
	not(`for ever`, `"indefinitely"`),
	not(`meanwhile\b.*\bmeanwhile`, `one "meanwhile"`),

	// State.
	not(`what is there|what there is`, `"existing"`),
	not(`(has|have) to be there|is there to be`, `"must exist"`),
	not(`brought`, `"imported", "user-supplied", "added"`),
	not(`in place of`, `"instead of"`),

	// Actions.
	not(`mend(s|ed|ing)?`, `"fix"`),
	not(`in vain`, `"without effect"`),
	not(`takes? (them|it) back`, `"revert"`),
	not(`works on the setup`, `"changes the setup"`),
	not(`by hand of`, `"by"`),
	not(`do(es)? without`, `"skip", "work without"`),

	// Words.
	not(`folders?`, `"directory"`),
	not(`but for`, `"except"`),
	not(`all the same`, `"anyway"`),
	not(`if need be|where need be`, `"if necessary"`),
	not(`some (ten|twenty|thirty)`, `"about 20"`),
	not(`the program of`, `"the binary of"`),
}

// allowed is removed from a line before it is checked: the mailbox in the SOA record of a test DNS zone, and correct phrases that
// contain one of the list.
var allowed = regexp.MustCompile(`(?i)\bnobody\.invalid\b|\bthere is no\b|\bis no longer\b|\bis no more\b`)
