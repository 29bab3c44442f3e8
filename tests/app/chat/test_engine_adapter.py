"""The real engine behind the chat's port: translated faithfully, its faults as sentences."""
