"""Campaigns about 5.x clients at the gRPC port."""
