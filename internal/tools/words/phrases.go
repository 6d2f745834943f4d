package main

import "regexp"

// phrases read as translated. kubectl, kubeadm, etcd and the Kubernetes documentation do not use them.
// A bracket around a letter keeps the list from finding itself.
var phrases = []phrase{
	// Functions and messages.
	not(`tells? (whethe[r]|if)|says? whethe[r]|looks? whethe[r]|reports whether or no[t]`, `"reports whether"`),
	not(`(tells?|says?) (why|who)|says? so`, `"reports the reason", "shows", "with a message"`),
	not(`looks? what`, `"checks", "lists"`),
	not(`is no [a-z]+`, `"is not a", "invalid"`),
	not(`that wha[t]|such a on[e]|those of the[m]|of which [a]|at (most|least) one of them whic[h]`, `two short sentences`),
	not(`stop working tha[t]`, `the clause next to its noun`),

	// Subjects.
	not(`nobod[y]|somebody|whoeve[r]|whomever|people`, `the subject: users, clients, components, processes; or a passive`),
	not(`wh[o] (wants|asks|has|reads|calls|needs)`, `the subject: users, clients, components, processes`),
	not(`strangers?`, `"other owner", "unknown"`),

	// Time.
	not(`ane[w]`, `"again"`),
	not(`goes on (to|with)|go o[n] (to|with)|gone o[n]|it goes o[n]|serves? on`, `"continue", "keep serving"`),
	not(`again and again`, `"repeatedly", "retries"`),
	not(`forme[r]( ones?)?`, `"previous"`),
	not(`present on[e]`, `"current one"`),
	not(`is over( soo[n])?`, `"has ended"`),
	not(`for eve[r]`, `"indefinitely"`),
	not(`meanwhil[e]\b.*\bmeanwhil[e]`, `one "meanwhile"`),

	// State.
	not(`what is there|what there is`, `"existing"`),
	not(`(has|have) to be there|is there to b[e]`, `"must exist"`),
	not(`brough[t]`, `"imported", "user-supplied", "added"`),
	not(`in place o[f]`, `"instead of"`),

	// Actions.
	not(`men[d](s|ed|ing)?`, `"fix"`),
	not(`in vai[n]`, `"without effect"`),
	not(`takes? (them|it) bac[k]`, `"revert"`),
	not(`works on the setu[p]`, `"changes the setup"`),
	not(`by hand o[f]`, `"by"`),
	not(`do(es)? without`, `"skip", "work without"`),

	// Words.
	not(`folders?`, `"directory"`),
	not(`but for`, `"except"`),
	not(`all the same`, `"anyway"`),
	not(`if need be|where need be`, `"if necessary"`),
	not(`some (ten|twenty|thirty)`, `"about 20"`),
	not(`the program o[f]`, `"the binary of"`),
}

// allowed is removed from a line before it is checked: the mailbox in the SOA record of a test DNS zone, and correct
// phrases that contain one of the list.
var allowed = regexp.MustCompile(`(?i)\bnobody\.invalid\b|\bthere is no\b|\bis no longer\b|\bis no more\b`)
