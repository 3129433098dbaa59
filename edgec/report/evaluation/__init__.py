"""Reports of `edgec eval`: text, JUnit, and a page with the worst pictures."""
