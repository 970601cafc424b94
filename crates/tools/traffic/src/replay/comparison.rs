//! What a replay's answers were, beside those of its record.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::script::MethodId;

/// An answer that differs from the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Difference {
    /// The method of the request.
    pub method: MethodId,
    /// The status in the record; 0 where it has no answer, or where a request of the other end was awaited.
    pub recorded: u16,
    /// The status in the run; 0 where the request that was awaited did not come.
    pub got: u16,
}

impl Difference {
    fn words(&self) -> (String, String) {
        let status = |status: u16| status.to_string();
        match (self.recorded, self.got) {
            (0, 0) => ("a request".to_owned(), "none".to_owned()),
            (0, got) => ("no answer".to_owned(), status(got)),
            (recorded, 0) => (status(recorded), "none".to_owned()),
            (recorded, got) => (status(recorded), status(got)),
        }
    }
}

/// Answers as they were recorded, and others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerComparison {
    /// Answers with the status of the record.
    pub same: u64,
    differs: BTreeMap<Difference, u64>,
}

impl AnswerComparison {
    /// Counts an answer.
    pub fn add(&mut self, verb: MethodId, recorded: u16, got: u16) {
        if recorded == got && got > 0 {
            self.same += 1;
        } else {
            *self.differs.entry(Difference { method: verb, recorded, got }).or_default() += 1;
        }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.same += other.same;
        for (difference, count) in &other.differs {
            *self.differs.entry(*difference).or_default() += count;
        }
    }

    /// What differs, and how often.
    pub fn differs(&self) -> impl Iterator<Item = (Difference, u64)> {
        self.differs.iter().map(|(difference, count)| (*difference, *count))
    }

    /// Whether there was anything to compare.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.same == 0 && self.differs.is_empty()
    }

    /// For machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let differs: Vec<_> = self
            .differs()
            .map(|(difference, count)| {
                let (recorded, got) = difference.words();
                json!({ "method": difference.method.as_str(), "recorded": recorded, "got": got, "count": count })
            })
            .collect();
        json!({ "same": self.same, "differs": differs })
    }

    /// The lines of a report; none where nothing was compared.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if self.is_empty() {
            return text;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {} answers as recorded", self.same);
        for (difference, count) in self.differs() {
            let (recorded, got) = difference.words();
            let _ = writeln!(
                text,
                "  {:<8} differs from the record: {recorded} → {got}: {count}",
                difference.method.as_str()
            );
        }
        text
    }
}
