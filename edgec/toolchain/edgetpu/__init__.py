"""Runs Google's edgetpu_compiler and checks its results.

`runners`, `ssh` and `handoff` run it here, over ssh or by hand; `log` parses its log,
`statuses` knows its messages, `compiled` parses the file that it writes, and `driver`
decides whether to use it.

It is a closed program with old libraries, so nothing depends on it: a segment that it
does not compile whole keeps running uncompiled.
"""

PROGRAM = "edgetpu_compiler"
