`sticky containers exec` runs a command in a running container; Ctrl-C ends every command with 130 and a closed pipe with 141, from the
first moment on; docs/errors.md lists what the command itself says.
