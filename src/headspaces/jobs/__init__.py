"""Jobs of the workflow: log, code, provenance, locks."""
