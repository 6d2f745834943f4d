// Package ui is everything that people see: streams, progress, tables, questions and errors. It prints what others found
// out and decides nothing. No other package touches terminals.
//
// The rules of the terminal:
//
//  1. stdout is what was asked for (YAML, table, JSON, kubeconfig). stderr is everything about the run.
//  2. Nothing on stdout or stderr has colour or cursor moves unless that stream is a terminal, NO_COLOR is unset and
//     TERM is not dumb; --color=auto|always|never says otherwise, --plain is as if neither stream were a terminal.
//  3. One glyph set: ✓ ✗ ! · and + ~ -. ASCII when the locale is not UTF-8. No emoji.
//  4. Every wait says what for, since when, and until when. Every error says object, cause, next step.
//  5. A question only if stdin and stderr are terminals; otherwise --yes or exit 2. Only deletes ask.
//  6. First Ctrl-C: finish the current request, print the state, exit 130. Second: die.
//  7. Secrets, keys and tokens are never printed, diffed or logged; a certificate prints as subject and expiry.
//  8. Same input, same bytes: sorted, no wall-clock in rendered output.
//
// What comes from clusters and processes, such as the reason of a wait, is not trusted: control characters in it never
// reach the terminal.
package ui
