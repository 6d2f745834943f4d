package cmd

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/kcpctl/kcpctl/internal/engine/check"
)

// outputJUnit is the value of -o for the format that CI systems show as test results.
const outputJUnit = "junit"

// junitSuites is a file in the format of JUnit, with one suite: the checks.
type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

// junitCase is a check. Warnings pass, and their causes are its output.
type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func printJUnit(w io.Writer, r *check.Report) error {
	suite := junitSuite{Name: fmt.Sprintf("kcpctl check: kcp %q, %s", r.Name, r.Where), Tests: len(r.Results)}
	for _, res := range r.Results {
		c := junitCase{Class: res.Category, Name: res.ID + " " + res.Title}
		text := res.Cause
		if res.Fix != "" {
			text += "\nfix: " + res.Fix
		}
		message := &junitMessage{Message: firstLine(res.Cause), Text: text}
		switch res.Status {
		case check.Fail:
			suite.Failures++
			c.Failure = message
		case check.Skipped:
			suite.Skipped++
			message.Text = ""
			c.Skipped = message
		case check.Warn:
			c.Output = strings.TrimSpace("warning: " + text)
		}
		suite.Cases = append(suite.Cases, c)
	}
	out, err := xml.MarshalIndent(junitSuites{Suite: suite}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, out)
	return err
}
