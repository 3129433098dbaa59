"""Google's edgetpu_compiler: run here, over ssh or by hand (`runners`, `ssh`,
`handoff`), its log read (`log`), its words understood (`statuses`), the file that it
writes looked into (`compiled`), its answer judged (`driver`).

It is a closed program of old libraries, so nothing depends on it: a segment that it
does not compile whole keeps running uncompiled.
"""

PROGRAM = "edgetpu_compiler"
