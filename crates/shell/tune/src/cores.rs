//! Sets of processor cores, as the kernel writes them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of cores. Its text is the kernel's list: `0-3,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(BTreeSet<usize>);

/// Highest number of cores that a text may name.
const MAX_CORES: usize = 8_192;

impl Cores {
    /// Creates a set of these cores.
    #[must_use]
    pub fn new(cores: impl IntoIterator<Item = usize>) -> Self {
        Self(cores.into_iter().collect())
    }

    /// Returns the cores in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it has no core.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the cores of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns the set as the hexadecimal mask of `rps_cpus`: 32 bits a word, the highest first.
    #[must_use]
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word =
            |at: usize| self.iter().filter(|core| core / 32 == at).fold(0_u32, |word, core| word | 1 << (core % 32));
        let mut text = format!("{:x}", word(words - 1));
        for at in (0..words - 1).rev() {
            text.push_str(&format!(",{:08x}", word(at)));
        }
        text
    }

    /// Returns the mask in the form of another one: the kernel pads each word with zeros, up to the number of possible
    /// cores.
    #[must_use]
    pub fn mask_like(&self, form: &str) -> String {
        let mask = self.mask();
        let widths: Vec<usize> = form.trim().rsplit(',').map(str::len).collect();
        let own: Vec<&str> = mask.rsplit(',').collect();
        let word = |at: usize| {
            let width = widths.get(at).copied().unwrap_or(0);
            format!("{:0>width$}", own.get(at).copied().unwrap_or("0"))
        };
        let words: Vec<String> = (0..own.len().max(widths.len())).rev().map(word).collect();
        words.join(",")
    }

    /// Reads a mask.
    #[must_use]
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut cores = Self::default();
        for (at, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word, 16).ok()?;
            cores.0.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| 32 * at + bit));
        }
        Some(cores)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest: Vec<usize> = self.iter().collect();
        rest.reverse();
        let mut separator = "";
        while let Some(first) = rest.pop() {
            let mut last = first;
            while rest.last() == Some(&(last + 1)) {
                last += 1;
                rest.pop();
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cores = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().ok().filter(|core| *core < MAX_CORES);
            let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
            let (first, last) = range.ok_or_else(|| format!("{text:?} is no list of cores, such as 0-3,7"))?;
            cores.extend(first..=last);
        }
        Ok(Self(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_are_the_kernels() {
        for text in ["", "0", "0-1", "0,2", "0-3,7", "1,3,5-8,100"] {
            assert_eq!(text.parse::<Cores>().expect(text).to_string(), text);
        }
        assert_eq!("3,0-1,2".parse::<Cores>().expect("unsorted").to_string(), "0-3");
        for text in ["x", "3-1", "1-", "99999"] {
            assert!(text.parse::<Cores>().is_err(), "{text}");
        }
        assert_eq!(Cores::new([0, 1]).mask(), "3");
        assert_eq!(Cores::new([33, 0]).mask(), "2,00000001");
        assert_eq!(Cores::new([0, 1]).mask_like("00\n"), "03");
        assert_eq!(Cores::new([0, 7]).mask_like("00000000,00000000\n"), "00000000,00000081");
        assert_eq!(Cores::new([33, 0]).mask_like("0,00000000"), "2,00000001");
        assert_eq!(Cores::from_mask("2,00000001\n"), Some(Cores::new([0, 33])));
        assert_eq!(Cores::from_mask("x"), None);
        assert_eq!(Cores::new([0, 1, 2]).without(&Cores::new([1])).to_string(), "0,2");
    }
}
