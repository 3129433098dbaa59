"""The version, apart from the package, so that any room may say it."""

VERSION = "0.1.0"
