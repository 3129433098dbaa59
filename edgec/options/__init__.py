"""The options of each verb, declared once for Python, the command line and the manual."""
