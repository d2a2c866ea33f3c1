//! Rules: an immutable snapshot of users, policies and enabled checks.
//!
//! A change replaces the snapshot by one of the next generation.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;

use super::action::{Action, Actions};
use super::limits::{Limits, Usage};
use super::permits::Permits;
use super::policy::{Decision, Needed, Policies};
use super::refusal::{Refusal, shown};
use super::resource::{Resource, ResourceKind};
use super::signature::{SigningKey, TooManyFields};
use super::white_list::WhiteList;

/// Suffix of the topic, named after the cluster, in which brokers store replies to requests.
const REPLY_SUFFIX: &str = "_REPLY_TOPIC";

/// A user that can sign requests.
pub struct User {
    /// The access key.
    pub name: Box<str>,
    /// The key derived from the secret key.
    pub key: SigningKey,
    /// Super users may do everything.
    pub is_super: bool,
    /// Disabled users may do nothing.
    pub is_enabled: bool,
    /// The user's permissions.
    pub policies: Policies,
    /// Addresses whose requests need neither a signature nor a policy for this user.
    pub trusted_from: WhiteList,
    /// The user's current share of `Checks::limits`.
    pub usage: Arc<Usage>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.name)
    }
}

/// The enabled checks.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Requests must be signed.
    pub authenticates: bool,
    /// Users must have a policy for what they do.
    pub authorizes: bool,
    /// Certificates authenticate requests without a signature.
    pub takes_certificates: bool,
    /// Codes of requests that need no signature.
    pub unsigned_codes: HashSet<i32>,
    /// Codes of requests that need no policy.
    pub unguarded_codes: HashSet<i32>,
    /// The name of the cluster, a resource in policies.
    pub cluster: Box<str>,
    /// Addresses whose requests are accepted from any user.
    pub trusted_from: WhiteList,
    /// The limits of each user.
    pub limits: Limits,
}

impl Checks {
    /// Returns whether any check is enabled.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.authenticates || self.authorizes
    }
}

/// The snapshot.
#[derive(Debug, Default)]
pub struct Rules {
    /// The enabled checks.
    pub checks: Checks,
    /// Number of the snapshot, increasing.
    pub generation: u64,
    users: HashMap<Box<str>, Arc<User>>,
}

/// The parts of a request that identify its sender.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The request code.
    pub code: i32,
    /// Ordinal of the sender's release.
    pub version: i32,
    /// The user's name; empty if missing, and in C++ clients.
    pub access_key: &'a str,
    /// The common name of the connection's certificate, signed by an authority of the server.
    pub certificate_name: Option<&'a str>,
    /// The signature as received.
    pub signature: &'a str,
    /// The body as received.
    pub body: &'a [u8],
    /// The source address.
    pub source: IpAddr,
}

/// The sender of a request.
#[derive(Debug)]
pub struct Sender {
    /// The user; `None` if unknown and not required.
    pub user: Option<Arc<User>>,
    /// The address is on a white list: policies do not apply.
    pub is_trusted: bool,
}

impl Rules {
    /// Creates a snapshot of these users.
    #[must_use]
    pub fn new(checks: Checks, generation: u64, users: impl IntoIterator<Item = User>) -> Self {
        let users = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        Self { checks, generation, users }
    }

    /// Returns the user of this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// Identifies the sender. `known` is the user of the connection's last request, of the same generation.
    ///
    /// Without authentication the sender is the user that the request names, unverified.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn authenticate<'a>(
        &self,
        signed: Signed<'a>,
        known: Option<&Arc<User>>,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Sender, Refusal> {
        if self.checks.trusted_from.has(signed.source) {
            return Ok(Sender { user: None, is_trusted: true });
        }
        let named = known.filter(|user| *user.name == *signed.access_key);
        let named = named.or_else(|| self.users.get(signed.access_key));
        if let Some(user) = named.filter(|user| user.trusted_from.has(signed.source)) {
            return Ok(Sender { user: Some(Arc::clone(user)), is_trusted: true });
        }
        let user = self.signer(signed, named, known, fields)?;
        Ok(Sender { user, is_trusted: false })
    }

    /// Returns the signer: `user`, named by the request, or the user of its certificate.
    fn signer<'a>(
        &self,
        signed: Signed<'a>,
        user: Option<&Arc<User>>,
        known: Option<&Arc<User>>,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Arc<User>>, Refusal> {
        let Signed { code, version, access_key, signature, body, .. } = signed;
        let is_checked = self.checks.authenticates && !self.checks.unsigned_codes.contains(&code);
        if access_key.is_empty() {
            return match signed.certificate_name.filter(|_| self.checks.takes_certificates) {
                Some(name) => self.certified(name, known, is_checked),
                None if is_checked => Err(Refusal::Unsigned),
                None => Ok(None),
            };
        }
        let mismatch = || Refusal::Mismatch { user: shown(access_key) };
        if self.checks.authenticates {
            let is_signed =
                user.map_or(Ok(false), |user| user.key.verifies(signature, fields, version, body));
            let is_signed = is_signed.map_err(|TooManyFields| Refusal::TooManyFields)?;
            match (user, is_signed) {
                (Some(user), true) if !user.is_enabled => {
                    return Err(Refusal::Disabled { user: shown(access_key) });
                }
                (Some(user), true) => return Ok(Some(Arc::clone(user))),
                _ if is_checked => return Err(mismatch()),
                // A code that needs no signature is served, but without a user if the signature is wrong.
                _ => return Ok(None),
            }
        }
        match user {
            Some(user) if !user.is_enabled => Err(Refusal::Disabled { user: shown(access_key) }),
            user => Ok(user.map(Arc::clone)),
        }
    }

    /// Returns the user of a certificate.
    fn certified(
        &self,
        name: &str,
        known: Option<&Arc<User>>,
        is_checked: bool,
    ) -> Result<Option<Arc<User>>, Refusal> {
        let known = known.filter(|user| *user.name == *name);
        match known.or_else(|| self.users.get(name)) {
            Some(user) if user.is_enabled => Ok(Some(Arc::clone(user))),
            Some(_) => Err(Refusal::Disabled { user: shown(name) }),
            None if is_checked => Err(Refusal::Uncertified { user: shown(name) }),
            None => Ok(None),
        }
    }

    /// Returns whether the policies of `user` apply to requests with this code.
    #[must_use]
    pub fn guards(&self, code: i32, user: Option<&User>) -> bool {
        self.checks.authorizes
            && !self.checks.unguarded_codes.contains(&code)
            && !user.is_some_and(|user| user.is_super)
    }

    /// Returns whether it is more than sending to the topic of replies, which holds the replies to all clients.
    fn is_reading_of_replies(&self, needed: Needed<'_>) -> bool {
        let Resource { kind, name } = needed.resource;
        kind == ResourceKind::Topic
            && !Actions::of(&[Action::Pub]).cover(needed.actions)
            // A client with a namespace has a topic of replies in it.
            && name.rsplit('%').next().and_then(|plain| plain.strip_suffix(REPLY_SUFFIX))
                == Some(&*self.checks.cluster)
    }

    /// Checks whether `user` may do this from `source`. Call `guards` before.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn authorize(
        &self,
        user: Option<&User>,
        needed: Needed<'_>,
        source: IpAddr,
        permits: Option<&mut Permits>,
    ) -> Result<(), Refusal> {
        if permits.as_ref().is_some_and(|permits| permits.has(needed)) {
            return Ok(());
        }
        let Some(user) = user else { return Err(Refusal::Unsigned) };
        let named = match needed.resource {
            Resource { kind: ResourceKind::Cluster, .. } => {
                Resource { kind: ResourceKind::Cluster, name: &self.checks.cluster }
            }
            resource => resource,
        };
        let asked = Needed { resource: named, ..needed };
        if needed.is_reserved || self.is_reading_of_replies(needed) {
            return Err(Refusal::reserved(&user.name, asked, source));
        }
        match user.policies.deciding(asked, source) {
            Some(entry) if entry.decision == Decision::Allow => {}
            entry => return Err(Refusal::forbidden(&user.name, asked, source, entry)),
        }
        if let Some(permits) = permits {
            permits.add(needed);
        }
        Ok(())
    }
}
