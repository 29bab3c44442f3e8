"""What the user can tell the chat to do: each command once, for slash words, palette, keys and the page of keys."""
