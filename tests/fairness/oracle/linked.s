//go:build capacity || yunikorn

// Lets functions without bodies compile, which others link by name.
