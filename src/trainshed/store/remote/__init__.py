"""The platform's object store as a runner on another machine sees it: over HTTP, with its attempt's token."""
