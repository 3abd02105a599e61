"""The external object store: any S3 or OBS endpoint, with everything in one bucket of it."""
