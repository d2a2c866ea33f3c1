"""The control plane's side of the store: retention, events, progress of a recovery, offsets of delay levels."""
