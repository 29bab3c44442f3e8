"""The chat's screens, each with its style sheet beside it."""
