"""`tandem plan`: where a model would go, and what that costs, before it is loaded."""
