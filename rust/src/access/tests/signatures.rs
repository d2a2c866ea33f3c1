//! Signatures: vectors from Apache's clients, and properties.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::signature::{SIGNATURE_CHARS, SigningKey, TooManyFields, signed_text};
use super::lines;

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn requests_are_signed_as_the_original_signs_them() {
    let mut count = 0;
    for row in lines(include_str!("../../../../tests/vectors/signatures.txt")) {
        let [secret, release, fields, body, signature] = row[..] else { panic!("{row:?}") };
        let fields = fields.split(' ').map(|field| field.split_once('=').unwrap());
        let (release, body) = (release.parse().unwrap(), bytes_of(body));
        let (key, another) = (SigningKey::new(secret), SigningKey::new("another"));
        assert_eq!(&*key.sign(fields.clone(), release, &body).unwrap(), signature);
        let text = signed_text(fields.clone(), release, &body).unwrap();
        assert_eq!(&*key.sign_text(&text), signature);
        assert_eq!(key.verifies(signature, fields.clone(), release, &body), Ok(true));
        assert_eq!(another.verifies(signature, fields, release, &body), Ok(false));
        count += 1;
    }
    assert!(count >= 9);
}

#[test]
fn the_last_value_of_a_repeated_name_is_signed() {
    let key = SigningKey::new("secret");
    let sign = |fields: &[(&'static str, &'static str)]| key.sign(fields.iter().copied(), 513, b"").unwrap();
    assert_eq!(sign(&[("a", "1"), ("b", "2"), ("a", "3")]), sign(&[("b", "2"), ("a", "3")]));
    assert_ne!(sign(&[("a", "1"), ("b", "2"), ("a", "3")]), sign(&[("b", "2"), ("a", "1")]));
}

#[test]
fn a_request_with_more_fields_than_are_read_is_not_signed() {
    let names: Vec<_> = (0..257).map(|number| format!("{number:03}")).collect();
    let sign = |count| {
        SigningKey::new("secret").sign(names[..count].iter().map(|name| (name.as_str(), "")), 513, b"")
    };
    assert!(sign(256).is_ok());
    assert_eq!(sign(257), Err(TooManyFields));
}

proptest! {
    #[test]
    fn values_are_signed_in_the_order_of_their_names(
        fields in prop::collection::vec(("(consumer|\u{0}|é){0,2}[a-z\u{0}]{0,3}", "[0-9]{0,3}"), 0..20),
    ) {
        let signed = || fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let sorted: BTreeMap<_, _> = signed().collect();
        let expected: String = sorted.into_values().collect();
        prop_assert_eq!(signed_text(signed(), 513, b"").unwrap(), expected.into_bytes());
    }

    #[test]
    fn any_change_of_what_is_signed_changes_the_signature(
        values in prop::collection::vec("[a-z]{1,4}", 1..6), body in prop::collection::vec(any::<u8>(), 0..64), at in any::<prop::sample::Index>(),
    ) {
        let names = ["a", "B", "c", "D", "e"];
        let key = SigningKey::new("secret");
        let fields = |values: &[String]| -> Vec<(&'static str, String)> {
            names.into_iter().zip(values.iter().cloned()).collect()
        };
        let sign = |fields: &[(&'static str, String)], body: &[u8]| {
            key.sign(fields.iter().map(|(name, value)| (*name, value.as_str())), 513, body).unwrap()
        };
        let signature = sign(&fields(&values), &body);
        prop_assert_eq!(signature.len(), SIGNATURE_CHARS);
        let mut reversed = fields(&values);
        reversed.reverse();
        prop_assert_eq!(&sign(&reversed, &body), &signature, "the order on the wire does not count");
        let mut other = values.clone();
        other[at.index(values.len())].push('!');
        prop_assert_ne!(&sign(&fields(&other), &body), &signature);
        let longer = [&body[..], b"!"].concat();
        prop_assert_ne!(&sign(&fields(&values), &longer), &signature);
    }
}
