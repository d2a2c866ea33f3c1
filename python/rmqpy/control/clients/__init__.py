"""Connected clients: members of groups, and the requests the broker sends to them."""
