"""What `tandem bench`, `eval` and `tune` share: long work that can be stopped, its progress, where it was done."""
