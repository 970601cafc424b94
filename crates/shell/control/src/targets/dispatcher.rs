//! Parser of Kamailio's dispatcher list. Each line has the form `setid destination flags priority attributes`; the
//! last three fields are optional. `#` starts a comment.

use std::collections::BTreeSet;
use std::fmt;

use strowger_kamailio::{Attributes, is_in_service};

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    /// Line number, from 1.
    pub(super) line: usize,
    /// URI with `sip:`, which the file may omit.
    pub(super) uri: String,
    /// Whether its flags put it in service.
    pub(super) enabled: bool,
    /// Priority; higher ones come first.
    pub(super) priority: u16,
    /// The attribute `rweight`, else `weight`, else 1.
    pub(super) weight: u16,
    /// The attribute `maxload`, unless it is 0.
    pub(super) capacity: Option<u32>,
    /// Attributes that have a meaning but are not supported.
    pub(super) ignored: Vec<&'static str>,
}

/// A fault in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListFault {
    /// Line number, from 1; `None` for the whole file.
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// Returns the destinations of set `id`, in file order. Lines of other sets are parsed only as far as their set
/// number.
pub(super) fn read(text: &str, id: u32) -> Result<Vec<Destination>, ListFault> {
    let mut found: Vec<Destination> = Vec::new();
    let mut others = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let fault = |message: String| ListFault { line: Some(number), message };
        // A comment may follow any line, even directly after a URI.
        let mut fields = line.split_ascii_whitespace().take_while(|field| !field.starts_with('#'));
        let Some(set) = fields.next() else { continue };
        let set: u32 = set.parse().map_err(|_| {
            let form = "write the set's number, the destination's URI, and optionally flags, priority and attributes";
            fault(format!("{set:?} is not a set number; {form}"))
        })?;
        let Some(uri) = fields.next() else {
            return Err(fault(format!("the destination is missing; write its URI, such as {set} sip:192.0.2.1:5060")));
        };
        if set != id {
            others.insert(set);
            continue;
        }
        let (uri, fields) = match uri.split_once('#') {
            Some((uri, _)) => (uri, None),
            None => (uri, Some(fields)),
        };
        let destination = destination(number, uri, fields.into_iter().flatten()).map_err(fault)?;
        if let Some(earlier) = found.iter().find(|earlier| earlier.uri == destination.uri) {
            return Err(fault(format!("{} is already in line {}; remove one", destination.uri, earlier.line)));
        }
        found.push(destination);
    }
    if found.is_empty() {
        let known: Vec<String> = others.iter().map(u32::to_string).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
        return Err(ListFault {
            line: None,
            message: format!("there is no destination of set {id} in it; sets: {known}"),
        });
    }
    Ok(found)
}

fn destination<'a>(line: usize, uri: &str, mut more: impl Iterator<Item = &'a str>) -> Result<Destination, String> {
    let has_scheme =
        ["sip:", "sips:"].iter().any(|scheme| uri.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)));
    let uri = if has_scheme { uri.to_owned() } else { format!("sip:{uri}") };
    let flags = more.next().map_or(Ok(0), |text| {
        text.parse::<u32>()
            .map_err(|_| format!("{text:?} is not a flags value; write the sum, such as 0, or 4 for disabled"))
    })?;
    let priority = more.next().map_or(Ok(0), |text| {
        text.parse::<u16>()
            .map_err(|_| format!("{text:?} is not a priority; write 0 to 65535, the highest is tried first"))
    })?;
    let attributes = Attributes::read(more.next().unwrap_or_default())?;
    let (weight, enabled) = (attributes.weight(), is_in_service(flags.into()));
    let Attributes { capacity, ignored, .. } = attributes;
    Ok(Destination { line, uri, enabled, priority, weight, capacity, ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Same form as Kamailio's sample file.
    const SAMPLE: &str = "\
# $Id$
# dispatcher destination sets
#

# line format
# setit(int) destination(sip uri) flags(int,opt) priority(int,opt) attributes(str,opt)

# proxies
2 sip:127.0.0.1:5080
2 sip:127.0.0.1:5082

# gateways
1 sip:127.0.0.1:7070
1 sip:127.0.0.1:7072
1 sip:127.0.0.1:7074
";

    /// Lines as found in practice.
    const WHOLE: &str = "\
1 sip:192.0.2.1:5060;transport=tcp 0 10 duid=a;maxload=30;weight=50   # Vienna
1\tsip:192.0.2.2 8 5 weight=20;rweight=3;maxload=0;class=dxa;prefix=448;strip=2
  1 192.0.2.3#a comment
1 sip:192.0.2.4 4
1 sip:192.0.2.5 1 0 socket=udp:192.0.2.9:5060;latency=100;;SOCKNAME=in
1 sip:192.0.2.6 18\r
2 sips:of.another.set x
";

    fn uris(found: &[Destination]) -> Vec<(usize, &str)> {
        found.iter().map(|one| (one.line, &*one.uri)).collect()
    }

    #[test]
    fn sample_is_parsed() {
        let gateways = read(SAMPLE, 1).expect("sound");
        assert_eq!(
            uris(&gateways),
            [(13, "sip:127.0.0.1:7070"), (14, "sip:127.0.0.1:7072"), (15, "sip:127.0.0.1:7074")]
        );
        assert!(
            gateways.iter().all(|one| one.enabled && one.weight == 1 && one.priority == 0 && one.capacity.is_none())
        );
        assert_eq!(uris(&read(SAMPLE, 2).expect("sound")), [(9, "sip:127.0.0.1:5080"), (10, "sip:127.0.0.1:5082")]);
    }

    #[test]
    fn flags_priorities_and_attributes_are_read() {
        let found = read(WHOLE, 1).expect("sound");
        let shown: Vec<_> =
            found.iter().map(|one| (&*one.uri, one.enabled, one.priority, one.weight, one.capacity)).collect();
        assert_eq!(
            shown,
            [
                ("sip:192.0.2.1:5060;transport=tcp", true, 10, 50, Some(30)),
                ("sip:192.0.2.2", true, 5, 3, None),
                ("sip:192.0.2.3", true, 0, 1, None),
                ("sip:192.0.2.4", false, 0, 1, None),
                ("sip:192.0.2.5", false, 0, 1, None),
                ("sip:192.0.2.6", true, 0, 1, None),
            ]
        );
        assert_eq!(found[4].ignored, ["socket", "sockname"]);
        assert!(found[1].ignored.is_empty(), "what a script meant is its own");
    }

    #[test]
    fn each_error_names_its_line() {
        for (text, expected) in [
            ("# nothing\n", " there is no destination of set 1 in it; sets: there is none"),
            ("2 sip:a\n3 sip:b\n", " there is no destination of set 1 in it; sets: there are 2, 3"),
            (
                "\none sip:a\n",
                "2: \"one\" is not a set number; write the set's number, the destination's URI, and optionally flags, priority \
                 and attributes",
            ),
            ("1\n", "1: the destination is missing; write its URI, such as 1 sip:192.0.2.1:5060"),
            ("1 # sip:a\n", "1: the destination is missing; write its URI, such as 1 sip:192.0.2.1:5060"),
            ("1 sip:a off\n", "1: \"off\" is not a flags value; write the sum, such as 0, or 4 for disabled"),
            ("1 sip:a 0 -1\n", "1: \"-1\" is not a priority; write 0 to 65535, the highest is tried first"),
            (
                "1 sip:a 0 0 weight=0\n",
                "1: \"weight=0\" is not a valid share; write weight=1 to weight=65535, or flags 4 to disable the destination",
            ),
            (
                "1 sip:a 0 0 maxload=many\n",
                "1: \"maxload=many\" is not a number of calls; write maxload=1 to maxload=1000000, or 0 for no limit",
            ),
            ("1 sip:a\n2 sip:a\n1 sip:a 0 5\n", "3: sip:a is already in line 1; remove one"),
        ] {
            assert_eq!(read(text, 1).expect_err(text).to_string(), expected, "{text}");
        }
    }
}
