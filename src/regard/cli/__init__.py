"""The command line: thin verbs over documented functions."""
