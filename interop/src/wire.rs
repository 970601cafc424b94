//! A minimal text view of SIP messages, sufficient for the tests' own user agents.

use std::net::{IpAddr, SocketAddr};

/// Returns the values of the header fields of this name, in order.
pub fn values<'a>(message: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let fields = message.lines().skip(1).take_while(|line| !line.is_empty());
    fields.filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns the value of the first header field of this name, or an empty string.
#[must_use]
pub fn value<'a>(message: &'a str, name: &'a str) -> &'a str {
    values(message, name).next().unwrap_or_default()
}

/// Returns the method of a request, or `SIP/2.0` for a response.
#[must_use]
pub fn method(message: &str) -> &str {
    message.split(' ').next().unwrap_or_default()
}

/// Returns the status of a response.
#[must_use]
pub fn status(message: &str) -> Option<u16> {
    message.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()
}

/// Returns a parameter of a header field's value.
#[must_use]
pub fn parameter<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.split(';').skip(1).find_map(|parameter| parameter.trim().strip_prefix(name)?.strip_prefix('='))
}

/// Returns the tag of From or To.
#[must_use]
pub fn tag<'a>(message: &'a str, name: &'a str) -> &'a str {
    // Only what follows the brackets: a URI has parameters of its own.
    let value = value(message, name);
    parameter(value.rsplit_once('>').map_or(value, |(_, behind)| behind), "tag").unwrap_or_default()
}

/// Returns the individual hops of Record-Route or Route.
pub fn hops<'a>(message: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    values(message, name).flat_map(|value| value.split(',')).map(str::trim)
}

/// Returns the address of a URI, with or without brackets, whose host is an IP address.
#[must_use]
pub fn address(uri: &str) -> Option<SocketAddr> {
    let from_scheme = &uri[uri.find("sip:")? + 4..];
    let end = from_scheme.find([';', '>', '?']).unwrap_or(from_scheme.len());
    let host = from_scheme[..end].rsplit('@').next()?;
    host.parse().ok().or_else(|| Some(SocketAddr::new(host.parse::<IpAddr>().ok()?, 5060)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "BYE sip:a@127.0.0.1 SIP/2.0\r\nRoute: <sip:x@127.0.0.2:5070;lr>, <sip:127.0.0.3;lr>\r\n\
                    To: <sip:you@example.com;tag=no>;tag=yes\r\n\r\nTo: nobody";
        assert_eq!((method(text), tag(text, "To"), values(text, "To").count()), ("BYE", "yes", 1));
        let places: Vec<_> = hops(text, "Route").filter_map(address).collect();
        assert_eq!(places, ["127.0.0.2:5070", "127.0.0.3:5060"].map(|place| place.parse().expect("an address")));
    }
}
