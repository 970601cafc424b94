//! The codec against random values and random bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use proptest::prelude::*;
use strowger_media::bencode::Value;
use strowger_media::{Cookie, Reply};

/// A value that owns its strings.
#[derive(Clone, Debug)]
enum Tree {
    Int(i64),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Dict(Vec<(Vec<u8>, Tree)>),
}

impl Tree {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Int(int) => Value::Int(*int),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::List(list) => Value::List(list.iter().map(Self::value).collect()),
            Self::Dict(entries) => Value::Dict(entries.iter().map(|(key, value)| (&key[..], value.value())).collect()),
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let leaf = prop_oneof![any::<i64>().prop_map(Tree::Int), bytes().prop_map(Tree::Bytes)];
    leaf.prop_recursive(6, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Tree::List),
            prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), inner), 0..8).prop_map(Tree::Dict),
        ]
    })
}

/// Bytes that look like bencode more often than chance would have it.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![Just(b'd'), Just(b'l'), Just(b'i'), Just(b'e'), Just(b':'), b'0'..=b'9', any::<u8>()],
        0..120,
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(tree in tree()) {
        let mut text = Vec::new();
        tree.value().write(&mut text);
        prop_assert_eq!(Value::parse(&text), Ok(tree.value()));
        for end in 0..text.len() {
            prop_assert!(Value::parse(&text[..end]).is_err(), "nothing is valid and a part of another value");
        }
    }

    #[test]
    fn what_is_read_is_canonical(text in noise()) {
        if let Ok(value) = Value::parse(&text) {
            let mut written = Vec::new();
            value.write(&mut written);
            prop_assert_eq!(written, text);
        }
    }

    #[test]
    fn no_bytes_of_an_engine_do_harm(text in noise(), cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        drop(Reply::parse(&text));
        let valid = b"000100000000000000020000000000000003 d3:sdp4:v=0\n6:result2:oke";
        let mut damaged = valid.to_vec();
        let at = cut.index(damaged.len());
        damaged[at] = byte;
        if let Some((_, rest)) = Cookie::split(&damaged) {
            drop(Reply::parse(rest));
        }
        let _ = Cookie::split(&valid[..at]);
        let _ = Cookie::split(&text);
    }
}
