//! Rules: users, their policies, and what is checked at all, as one picture.
//!
//! A picture never changes; another one, of the next generation, takes its place.

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

/// Behind a cluster's name: the topic in which its brokers keep the replies to requests.
const REPLY_SUFFIX: &str = "_REPLY_TOPIC";

/// Somebody who may sign requests.
pub struct User {
    /// The access key.
    pub name: Box<str>,
    /// Made of the secret key.
    pub key: SigningKey,
    /// May do everything.
    pub is_super: bool,
    /// May do nothing while this is not so.
    pub is_enabled: bool,
    /// What they may do.
    pub policies: Policies,
    /// Their requests are taken from here, without a signature or a policy.
    pub trusted_from: WhiteList,
    /// What they use now, of what `Checks::limits` allows.
    pub usage: Arc<Usage>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.name)
    }
}

/// What is checked.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Requests must be signed.
    pub authenticates: bool,
    /// Users must have a policy for what they do.
    pub authorizes: bool,
    /// A request without a signature is of the user its connection's certificate is for.
    pub takes_certificates: bool,
    /// Codes of requests that need no signature.
    pub unsigned_codes: HashSet<i32>,
    /// Codes of requests that need no policy.
    pub unguarded_codes: HashSet<i32>,
    /// The name of the cluster, which policies may speak of.
    pub cluster: Box<str>,
    /// Requests are taken from here, whoever sends them.
    pub trusted_from: WhiteList,
    /// What each user may use.
    pub limits: Limits,
}

impl Checks {
    /// Whether anything is checked.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.authenticates || self.authorizes
    }
}

/// The picture.
#[derive(Debug, Default)]
pub struct Rules {
    /// What is checked.
    pub checks: Checks,
    /// Grows with every picture.
    pub generation: u64,
    users: HashMap<Box<str>, Arc<User>>,
}

/// What a request says about its sender.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// Its code.
    pub code: i32,
    /// Ordinal of the sender's release.
    pub version: i32,
    /// The user's name; empty where there is none, as C++ clients have it.
    pub access_key: &'a str,
    /// The common name of its connection's certificate, which an authority of the server vouches for.
    pub certificate_name: Option<&'a str>,
    /// As it came.
    pub signature: &'a str,
    /// As it came.
    pub body: &'a [u8],
    /// Where it came from.
    pub source: IpAddr,
}

/// Who sent a request.
#[derive(Debug)]
pub struct Sender {
    /// `None` where that is not asked and cannot be told.
    pub user: Option<Arc<User>>,
    /// By a white list: no policy is asked.
    pub is_trusted: bool,
}

impl Rules {
    /// A picture of these users.
    #[must_use]
    pub fn new(checks: Checks, generation: u64, users: impl IntoIterator<Item = User>) -> Self {
        let users = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        Self { checks, generation, users }
    }

    /// The user of this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// Who sent the request. `known` is the user of the connection's last request, of this generation.
    ///
    /// Without authentication the sender is who the request says, unproven.
    ///
    /// # Errors
    /// The reason why it is not served.
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

    /// Whose request it is: of `user`, whom it names, or who its certificate is for.
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
                // A code that needs no signature is served; but not in the name of somebody it may not be from.
                _ => return Ok(None),
            }
        }
        match user {
            Some(user) if !user.is_enabled => Err(Refusal::Disabled { user: shown(access_key) }),
            user => Ok(user.map(Arc::clone)),
        }
    }

    /// The user that a certificate is for.
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

    /// Whether the policies of `user` are asked about requests of this code.
    #[must_use]
    pub fn guards(&self, code: i32, user: Option<&User>) -> bool {
        self.checks.authorizes
            && !self.checks.unguarded_codes.contains(&code)
            && !user.is_some_and(|user| user.is_super)
    }

    /// Whether it is more than sending to the topic of replies, in which those to all clients are stored.
    fn is_reading_of_replies(&self, needed: Needed<'_>) -> bool {
        let Resource { kind, name } = needed.resource;
        kind == ResourceKind::Topic
            && !Actions::of(&[Action::Pub]).cover(needed.actions)
            // A client with a namespace has a topic of replies in it.
            && name.rsplit('%').next().and_then(|plain| plain.strip_suffix(REPLY_SUFFIX))
                == Some(&*self.checks.cluster)
    }

    /// Whether `user` may do this from `source`. Ask `guards` before.
    ///
    /// # Errors
    /// The reason why not.
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
