//! Comparison of a replay's answers with the recorded ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::script::MethodId;

/// An answer that differs from the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Difference {
    /// The method of the request.
    pub method: MethodId,
    /// The recorded status; 0 if the recording has no answer, or if a request of the other end was expected.
    pub recorded: u16,
    /// The status in the run; 0 if the expected request did not come.
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

/// Counts of answers that match the recording and of those that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerComparison {
    /// Answers with the recorded status.
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

    /// Adds the counts of another comparison.
    pub fn merge(&mut self, other: &Self) {
        self.same += other.same;
        for (difference, count) in &other.differs {
            *self.differs.entry(*difference).or_default() += count;
        }
    }

    /// Returns each difference and its count.
    pub fn differs(&self) -> impl Iterator<Item = (Difference, u64)> {
        self.differs.iter().map(|(difference, count)| (*difference, *count))
    }

    /// Returns whether nothing was compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.same == 0 && self.differs.is_empty()
    }

    /// Returns the comparison as JSON.
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

    /// Returns the lines of a report; empty if nothing was compared.
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
                "  {:<8} differs from the recording: {recorded} → {got}: {count}",
                difference.method.as_str()
            );
        }
        text
    }
}
