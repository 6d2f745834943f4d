package facts

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/check"
)

// probeTime is how long the probe of an address may take: a front-proxy gives up after thirty seconds.
const probeTime = 35 * time.Second

var (
	// connectFailed is the error of an HTTP client of Go.
	connectFailed = regexp.MustCompile(`Get "https://[^"]*` + pathPrefix + `(\d+)/[^"]*": (.*)`)
	// answered is the answer of a server that repeats the path of the request.
	answered = regexp.MustCompile(pathPrefix + `(\d+)/`)
)

// initializing is part of each message about an issuer.
const initializing = "oidc authenticator: "

// handshakeErrors are parts of the errors of a connection to a server that answers.
var handshakeErrors = []string{
	"remote error: tls:", "server gave HTTP response to HTTPS client",
	"first record does not look like a TLS handshake",
	"malformed HTTP response",
}

// probeLog collects answers from the log of a probe.
type probeLog struct {
	addresses []check.ProbeAddress
	answers   []check.Answer
	// missing is the number of addresses without an answer. others is the number of answers of servers that do not say
	// for which address they are: the requests were refused by servers whose certificates were verified.
	missing, others int
	last            string
}

func newProbeLog(addresses []check.ProbeAddress) *probeLog {
	return &probeLog{addresses: addresses, answers: make([]check.Answer, len(addresses)), missing: len(addresses)}
}

// read reads a log until all answers are known, or the log ends.
func (l *probeLog) read(r io.Reader) {
	for s := bufio.NewScanner(r); l.missing > l.others && s.Scan(); {
		l.line(s.Text())
	}
}

func (l *probeLog) line(text string) {
	l.last = text
	text = strings.ReplaceAll(text, `\"`, `"`)
	if m := connectFailed.FindStringSubmatch(text); m != nil {
		l.set(m[1], func(a check.ProbeAddress) check.Answer { return answerOf(a, strings.TrimSuffix(m[2], `"`)) })
		return
	}
	if m := answered.FindStringSubmatch(text); m != nil {
		l.set(m[1], func(check.ProbeAddress) check.Answer { return check.Answer{Reach: check.Answers} })
		return
	}
	if strings.Contains(text, initializing) {
		l.others++
	}
}

func (l *probeLog) set(number string, answer func(check.ProbeAddress) check.Answer) {
	i, err := strconv.Atoi(number)
	if err != nil || i >= len(l.answers) || l.answers[i].Reach != "" {
		return
	}
	l.answers[i] = answer(l.addresses[i])
	l.missing--
}

// answerOf returns what the error of a connection means.
func answerOf(a check.ProbeAddress, message string) check.Answer {
	found := check.AnswerOf(message)
	handshake := slices.ContainsFunc(handshakeErrors, func(part string) bool { return strings.Contains(message, part) })
	if handshake || found.Reach == check.OtherServer && len(a.CA) == 0 {
		return check.Answer{Reach: check.Answers}
	}
	return found
}

// result returns the answers. Where nothing was logged about an address, a server has answered, unless none of them
// did.
func (l *probeLog) result(ctx context.Context) []check.Answer {
	for i := range l.answers {
		switch {
		case l.answers[i].Reach != "":
		case l.others > 0:
			l.answers[i].Reach = check.Answers
		case ctx.Err() != nil:
			l.answers[i] = check.Answer{Reach: check.NoAnswer, Detail: context.Cause(ctx).Error()}
		default:
			l.answers[i] = check.Answer{Reach: check.NotAsked, Detail: "the probe ended: " + l.last}
		}
	}
	return l.answers
}
