package ui

import "golang.org/x/sys/windows"

// redraws reports whether a file is a console that understands the control sequences of terminals. Consoles do so only
// after a program has requested it.
func redraws(fd int) bool {
	var mode uint32
	console := windows.Handle(fd)
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
