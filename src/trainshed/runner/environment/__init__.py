"""Python environments of jobs: resolved at submit, built once per exact set of packages, shared read-only."""
