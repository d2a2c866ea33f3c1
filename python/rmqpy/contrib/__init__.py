"""Integrations with other frameworks: one module each, with an extra of the same name; nothing else imports them."""
