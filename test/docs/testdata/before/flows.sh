cp "$HUTCH_REPOSITORY"/examples/flows/* .
