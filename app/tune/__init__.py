"""`tandem tune`: the fastest settings for a model on this machine, measured and kept."""
