"""Election: a broker whose id and role a controller assigns."""
