"""The chat's widgets: each shows what it is given and posts what the user did; none calls an engine or a store."""
