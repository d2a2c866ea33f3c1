"""The control plane's side of the store: retention, events, recovery progress, offsets of delay levels."""
