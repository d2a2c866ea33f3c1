"""Connected clients: who is in which group, and what the broker asks or tells them."""
