"""The parts of a name server: its tables, its key-value configuration, and the requests that read and change them."""
