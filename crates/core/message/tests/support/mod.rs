//! Generated valid messages together with their expected values.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use strowger_message::HeaderName;

/// A request and the values that a parser must return.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) branch: String,
    pub(crate) from_tag: String,
    pub(crate) to_tag: Option<String>,
    pub(crate) call_id: String,
    pub(crate) cseq: u32,
    pub(crate) max_forwards: Option<u8>,
    /// Names and values in order.
    pub(crate) fields: Vec<(HeaderName, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// A header field before it is written.
#[derive(Clone, Debug)]
pub(crate) struct FieldSpec {
    pub(crate) name: HeaderName,
    pub(crate) spelling: String,
    pub(crate) value: Vec<u8>,
}

/// Whitespace without meaning, before a value or between its parts.
fn lws() -> impl Strategy<Value = &'static str> {
    select(vec![" ", "  ", "\t", "\r\n ", " \r\n\t ", "\r\n\t\t"])
}

fn sws() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just(""), 1 => lws()]
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9.!%*_+`'~-]{1,12}"
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z]([a-z0-9-]{0,8}[a-z0-9])?){0,3}",
        any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).to_string()),
        any::<[u8; 16]>().prop_map(|ip| format!("[{}]", std::net::Ipv6Addr::from(ip))),
    ]
}

fn port() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), (1u16..).prop_map(|port| format!(":{port}"))]
}

/// Generates a SIP, SIPS or TEL URI without headers.
pub(crate) fn uri() -> impl Strategy<Value = String> {
    let user = "([A-Za-z0-9_.!~*'()&=+$,;?/-]|%[0-9A-Fa-f]{2}){1,10}(:([A-Za-z0-9&=+$,-]|%[0-9A-F]{2}){0,5})?@";
    let param = ";[a-z]{1,6}(=([A-Za-z0-9/:&+$~-]|\\[|\\]|%[0-9A-Fa-f]{2}){1,6})?";
    let sip =
        (select(vec!["sip:", "sips:", "SIP:", "Sips:"]), proptest::option::of(user), host(), port(), vec(param, 0..4))
            .prop_map(|(scheme, user, host, port, params)| {
                format!("{scheme}{}{host}{port}{}", user.unwrap_or_default(), params.concat())
            });
    prop_oneof![9 => sip, 1 => "tel:\\+?[0-9().-]{0,8}[0-9](;[a-z]{1,5}=[a-z0-9.]{1,6})?"]
}

fn display() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[A-Za-z0-9.!%*_+`'~-]{1,8}( [A-Za-z0-9.!%*_+`'~-]{1,8}){0,2} ?",
        "\"([ !#-\\[\\]-~àéжλ]|\\\\[ -~]){0,12}\" {0,2}",
    ]
}

/// Generates From or To, with its tag.
fn address(tag: String) -> impl Strategy<Value = String> {
    let param =
        (sws(), sws(), "x-[a-z]{1,5}", sws(), sws(), prop_oneof![token(), "\"([ !#-\\[\\]-~]|\\\\[ -~]){0,8}\""])
            .prop_map(|(a, b, name, c, d, value)| format!("{a};{b}{name}{c}={d}{value}"));
    (display(), uri(), vec(param, 0..3), sws(), sws()).prop_map(move |(display, uri, params, a, b)| {
        let tag = if tag.is_empty() { String::new() } else { format!("{a};{b}tag{b}={a}{tag}") };
        format!("{display}<{uri}>{}{tag}", params.concat())
    })
}

fn via(branch: String) -> impl Strategy<Value = String> {
    (sws(), lws(), sws(), host(), port(), token(), any::<bool>()).prop_map(
        move |(a, b, c, host, port, transport, rport)| {
            let rport = if rport { ";rport" } else { "" };
            format!("SIP{a}/{a}2.0{c}/{c}{transport}{b}{host}{port}{c};{a}branch{a}={c}{branch}{rport}")
        },
    )
}

fn any_case(name: &'static str) -> impl Strategy<Value = String> {
    vec(any::<bool>(), name.len()).prop_map(move |upper| {
        let turn = |(c, up): (char, &bool)| if *up { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        name.chars().zip(&upper).map(turn).collect()
    })
}

fn spelling(name: HeaderName) -> BoxedStrategy<String> {
    let compact = match name {
        HeaderName::Via => "v",
        HeaderName::From => "f",
        HeaderName::To => "t",
        HeaderName::CallId => "i",
        HeaderName::ContentLength => "l",
        HeaderName::Contact => "m",
        _ => return any_case(name.as_str()).boxed(),
    };
    prop_oneof![Just(name.as_str().to_owned()), any_case(name.as_str()), any_case(compact)].boxed()
}

fn written(name: HeaderName, value: impl Into<Vec<u8>>) -> BoxedStrategy<FieldSpec> {
    let value = value.into();
    spelling(name).prop_map(move |spelling| FieldSpec { name, spelling, value: value.clone() }).boxed()
}

fn unknown() -> impl Strategy<Value = FieldSpec> {
    let value = "([ -~àéжλ]|\r\n ){0,20}[!-~]";
    ("X-[A-Za-z0-9!%*_+~-]{1,10}", prop_oneof![Just(String::new()), value]).prop_map(|(spelling, value)| FieldSpec {
        name: HeaderName::Other,
        spelling,
        value: strowger_message::trim(value.as_bytes()).to_vec(),
    })
}

#[derive(Clone, Debug)]
struct Facts {
    method: String,
    uri: String,
    branch: String,
    from_tag: String,
    to_tag: Option<String>,
    call_id: String,
    cseq: u32,
    max_forwards: Option<u8>,
    body: Vec<u8>,
    length_written: bool,
}

fn facts() -> impl Strategy<Value = Facts> {
    let method = prop_oneof![
        2 => select(vec!["INVITE", "ACK", "BYE", "CANCEL", "REGISTER", "OPTIONS", "MESSAGE"]).prop_map(str::to_owned),
        1 => token(),
    ];
    let call_id = "[A-Za-z0-9.!%*_+`'~()<>:\\\\\"/\\[\\]?{}-]{1,20}(@[A-Za-z0-9.]{1,12})?";
    let lines = (method, uri(), "z9hG4bK[A-Za-z0-9.!%*_+`'~-]{1,16}", token(), proptest::option::of(token()));
    let rest = (call_id, 0u32..1 << 31, proptest::option::of(any::<u8>()), vec(any::<u8>(), 0..40), any::<bool>());
    (lines, rest).prop_map(
        |((method, uri, branch, from_tag, to_tag), (call_id, cseq, max_forwards, body, length_written))| Facts {
            method,
            uri,
            branch,
            from_tag,
            to_tag,
            call_id,
            cseq,
            max_forwards,
            body,
            length_written,
        },
    )
}

fn fields(facts: &Facts) -> impl Strategy<Value = Vec<FieldSpec>> + use<> {
    let Facts { method, cseq, call_id, max_forwards, body, length_written, .. } = facts.clone();
    let via = via(facts.branch.clone()).prop_flat_map(|value| written(HeaderName::Via, value));
    let from = address(facts.from_tag.clone()).prop_flat_map(|value| written(HeaderName::From, value));
    let to = address(facts.to_tag.clone().unwrap_or_default()).prop_flat_map(|value| written(HeaderName::To, value));
    let cseq = lws().prop_flat_map(move |gap| written(HeaderName::CSeq, format!("{cseq}{gap}{method}")));
    let fixed = (via, from, to, written(HeaderName::CallId, call_id), cseq);
    let hops = max_forwards.map(|hops| written(HeaderName::MaxForwards, hops.to_string()));
    let length = length_written.then(|| written(HeaderName::ContentLength, body.len().to_string()));
    let optional: Vec<_> = hops.into_iter().chain(length).collect();
    (fixed, optional, vec(unknown(), 0..5))
        .prop_map(|((via, from, to, call_id, cseq), optional, unknown)| {
            [vec![via, from, to, call_id, cseq], optional, unknown].concat()
        })
        .prop_shuffle()
}

/// Generates a request that the grammar of RFC 3261 allows, however unusual.
pub(crate) fn request() -> impl Strategy<Value = GeneratedRequest> {
    facts().prop_flat_map(|facts| {
        let fields = fields(&facts).prop_flat_map(|fields| {
            let count = fields.len();
            (Just(fields), vec((select(vec!["", " ", "\t"]), sws(), select(vec!["", " ", "\t "])), count))
        });
        fields.prop_map(move |(fields, spaces)| write(&facts, &fields, &spaces))
    })
}

fn write(facts: &Facts, fields: &[FieldSpec], spaces: &[(&str, &str, &str)]) -> GeneratedRequest {
    let mut bytes = format!("{} {} SIP/2.0\r\n", facts.method, facts.uri).into_bytes();
    for (field, (before, after, end)) in fields.iter().zip(spaces) {
        bytes.extend_from_slice(format!("{}{before}:{after}", field.spelling).as_bytes());
        bytes.extend_from_slice(&field.value);
        bytes.extend_from_slice(end.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&facts.body);
    GeneratedRequest {
        bytes,
        method: facts.method.clone(),
        uri: facts.uri.clone(),
        branch: facts.branch.clone(),
        from_tag: facts.from_tag.clone(),
        to_tag: facts.to_tag.clone(),
        call_id: facts.call_id.clone(),
        cseq: facts.cseq,
        max_forwards: facts.max_forwards,
        fields: fields.iter().map(|field| (field.name, field.value.clone())).collect(),
        body: facts.body.clone(),
    }
}
