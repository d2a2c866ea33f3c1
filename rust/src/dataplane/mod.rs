//! Placeholder: see the owner of this module.
