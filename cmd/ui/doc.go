// Package ui prints everything that users see: streams, progress, tables, questions and errors. It contains no
// decisions about the run. No other package uses terminals.
//
// The rules of the terminal:
//
//  1. stdout is the result (YAML, table, JSON, kubeconfig). stderr is everything about the run.
//  2. A stream has cursor movements only if it is a terminal and TERM is not dumb, and colours only if NO_COLOR is
//     unset, too. --color=auto|always|never overrides this for colours. --plain treats all streams as files.
//  3. One glyph set: ✓ ✗ ! · and + ~ -. ASCII if the locale is not UTF-8. No emoji.
//  4. Every wait shows its reason, its start and its end. Every error has an object, a cause and a next step.
//  5. Questions only if stdin and stderr are terminals; otherwise --yes is required. Only deletions ask.
//  6. The first Ctrl-C finishes the current request, prints the state and exits with 130. The second exits at once.
//  7. Secrets, keys and tokens are never printed, diffed or logged. Certificates are printed as subject and expiry.
//  8. The same input gives the same bytes: output is sorted, and rendered output has no timestamps.
//
// Text from clusters and processes, such as the reason of a wait, is not trusted: control characters are removed.
package ui
