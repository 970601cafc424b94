//! The counters of `strowger ctl status`, their metrics and their meanings.

/// A counter of `strowger ctl status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The part of the server, such as `sockets`.
    pub part: &'static str,
    /// The name within the part.
    pub name: &'static str,
    /// How its value changes, and its unit.
    pub kind: Kind,
    /// The meaning, as in `docs/operating/counters.md`.
    pub help: &'static str,
    /// Label and value, if several counters are one metric.
    pub label: Option<(&'static str, &'static str)>,
    /// Name of the metric instead of `PART_NAME`.
    metric: Option<&'static str>,
}

/// How a value changes, and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Only grows; in bytes.
    Bytes,
    /// The current value.
    Gauge,
}

impl Counter {
    /// Returns the name of the metric without the prefix `strowger_`, unit and `_total`.
    #[must_use]
    pub fn metric(&self) -> String {
        self.metric.map_or_else(|| format!("{}_{}", self.part, self.name), str::to_owned)
    }

    const fn of(part: &'static str, name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { part, name, kind, help, label: None, metric: None }
    }

    /// For a name that would contradict the conventions of metrics.
    const fn named(self, metric: &'static str) -> Self {
        Self { metric: Some(metric), ..self }
    }

    /// For one of several counters that are one metric.
    const fn labelled(self, label: &'static str, value: &'static str) -> Self {
        Self { label: Some((label, value)), ..self }
    }

    /// Returns the meaning of the metric, without what the label says.
    pub(crate) fn metric_help(&self) -> &'static str {
        match (self.label, self.help.split_once(": ")) {
            (Some(_), Some((_, help))) => help,
            _ => self.help,
        }
    }
}

const fn counter(part: &'static str, name: &'static str, help: &'static str) -> Counter {
    Counter::of(part, name, Kind::Counter, help)
}

const fn bytes(part: &'static str, name: &'static str, help: &'static str) -> Counter {
    Counter::of(part, name, Kind::Bytes, help)
}

const fn gauge(part: &'static str, name: &'static str, help: &'static str) -> Counter {
    Counter::of(part, name, Kind::Gauge, help)
}

/// All counters, in the order of `docs/operating/counters.md`.
#[rustfmt::skip]
pub const COUNTERS: &[Counter] = &[
    counter("sockets", "received", "Datagrams received."),
    counter("sockets", "sent", "Datagrams accepted by the kernel."),
    counter("sockets", "segmented", "Part of sent: datagrams that left as one packet with others to the same peer (UDP segmentation)."),
    counter("sockets", "truncated", "Datagrams dropped because they exceed 64 KiB less headers."),
    counter("sockets", "unaddressed", "Datagrams dropped because the sender's address family is unknown."),
    counter("sockets", "kernel_drops", "Datagrams that the kernel dropped because a receive buffer was full. Updated when the next datagram arrives."),
    counter("sockets", "send_errors", "Datagrams that the kernel refused to send."),
    counter("sockets", "no_buffers", "Part of send_errors: for lack of kernel memory, or because a device's queue was full."),
    counter("sockets", "send_blocked", "Times that a send buffer was full and the rest waited."),
    counter("sockets", "send_overflow", "Datagrams dropped because too many waited."),
    counter("sockets", "icmp_errors", "ICMP errors for sent datagrams."),
    counter("workers", "keep_alives", "Empty datagrams by which phones keep their NAT mapping."),
    counter("workers", "stun_answered", "STUN Binding requests answered, by which phones keep their NAT mapping (RFC 5626)."),
    counter("workers", "stun_ignored", "Other STUN messages, which are not answered."),
    counter("workers", "malformed", "Datagrams dropped because they are not SIP."),
    counter("workers", "banned", "Datagrams dropped unread because their source is banned."),
    counter("workers", "foreign_responses", "Responses dropped because the server did not send their request."),
    counter("workers", "handover_sent", "Messages handed to another worker."),
    counter("workers", "handover_received", "Messages received from another worker."),
    counter("workers", "handover_drops", "Messages dropped because too many messages or bytes waited for one worker, or for a shard that was moving to it."),
    counter("workers", "held_for_rebalance", "Inputs that waited for shards on the move."),
    counter("workers", "forwarded_after_rebalance", "Inputs for shards that had moved away, forwarded to their worker."),
    counter("workers", "misdirected", "Messages dropped because their listener does not exist."),
    counter("workers", "event_drops", "Log lines lost because the log was written too slowly."),
    counter("workers", "record_drops", "Part of event_drops: call records."),
    counter("workers", "receive_errors", "Failed reads of a socket."),
    counter("workers", "media_send_errors", "Commands to media engines that could not be sent."),
    counter("workers", "media_drops", "Answers of media engines dropped because too many waited for a worker; they are asked for again."),
    counter("workers", "relayed", "Messages passed to an earlier process after an upgrade, which has their transaction."),
    counter("workers", "relay_received", "Messages received by the next process after an upgrade, for a transaction of this one."),
    counter("workers", "relay_drops", "Messages for a transaction of another process, dropped because too many waited."),
    counter("workers", "shed", "New work dropped by overload control after it was received."),
    counter("workers", "panics", "Contained panics of this program."),
    counter("shards", "requests", "Requests received, including retransmissions."),
    counter("shards", "responses", "Responses received."),
    counter("shards", "retransmissions", "Received requests that are retransmissions."),
    counter("shards", "malformed", "Messages that could not be parsed; answered 400 if possible."),
    counter("shards", "foreign_responses", "Responses dropped because their branch is not signed by this server."),
    counter("shards", "stray_responses", "Responses dropped because no transaction waits for them."),
    counter("shards", "overloaded", "Requests rejected or dropped by admission control."),
    counter("shards", "challenged", "Challenged requests, including retransmissions, as no state is kept for them."),
    counter("shards", "wrong_credentials", "Requests with a wrong password."),
    counter("shards", "refused", "Requests that the server itself answered with an error other than a challenge."),
    counter("shards", "amplification_limited", "Responses shortened or not sent, because the server answers a datagram from an unverified source with at most twice its bytes."),
    counter("shards", "registered", "Successful REGISTERs."),
    counter("shards", "too_many_contacts", "REGISTERs rejected because of registrar.max_contacts."),
    counter("shards", "local_destinations", "Contacts, redirections and next hops not followed because they lead to this machine, and who named them is elsewhere."),
    counter("shards", "store_unavailable", "REGISTERs rejected because the store could not save them."),
    counter("shards", "removals_forwarded", "Removals of registrations that were forwarded to other clusters that may have them: the user's earlier cluster, and the cluster that forwarded the REGISTER."),
    counter("shards", "removals_lost", "Removals that could not be forwarded to another cluster, because none of its members answers or there was no room."),
    counter("shards", "forwarded", "Requests forwarded statefully."),
    counter("shards", "forwarded_stateless", "Requests forwarded statelessly."),
    counter("shards", "forwarded_responses", "Responses forwarded."),
    counter("shards", "ring_timeouts", "Branches that rang longer than proxy.ring_timeout."),
    counter("shards", "failovers", "Requests tried at another next hop after the first failed."),
    counter("shards", "no_gateway", "Requests answered 408, 500 or 503 because no gateway, target or server of a name responded within its time, not even with 100 or 503, and requests answered 500 at once because no target is in service or none answers. Each request counts once. Not counted: requests that the caller cancelled, requests that ended by their route's timeout, and requests other than INVITE that met silence, which get no response."),
    counter("shards", "failovers_refused", "Requests not tried at another target because the retry budget was spent."),
    counter("shards", "shed_for_next_hop", "Requests answered 503 because their next hop requested less load."),
    counter("shards", "redirections_followed", "Redirections followed."),
    counter("shards", "challenges_answered", "Challenges answered for a trunk."),
    counter("shards", "table_full", "Requests rejected because a table was full."),
    counter("shards", "keep_alives", "Keep-alives sent to phones behind a NAT."),
    counter("shards", "keep_alive_answers", "Responses to keep-alives sent to phones that are OPTIONS."),
    counter("shards", "calls", "Calls begun: INVITEs that begin a call, without their repetitions after a challenge. A server in front of clusters counts none."),
    counter("shards", "calls_answered", "Calls answered with a 2xx."),
    counter("shards", "calls_ended", "Calls that have ended, answered or not."),
    counter("shards", "events_lost", "Log lines lost because one shard had too many at once."),
    counter("shards", "media_offers", "Offers sent to media engines."),
    counter("shards", "media_answers", "Answers sent to media engines."),
    counter("shards", "media_deletes", "Ends of calls sent to media engines."),
    counter("shards", "media_retransmissions", "Commands repeated because no answer had come."),
    counter("shards", "media_timeouts", "Commands, including probes, that an engine did not answer in time."),
    counter("shards", "media_failovers", "Offers sent to another engine because the call's own was silent, out of service or full."),
    counter("shards", "media_engine_refusals", "Offers and answers that engines refused."),
    counter("shards", "media_strays", "Datagrams that answer no pending command: late answers."),
    counter("shards", "media_refused", "Requests answered 503 because their media could not go through an engine."),
    counter("shards", "media_bypassed", "Messages forwarded as received although their media should go through an engine."),
    counter("shards", "media_table_full", "Calls or messages for which a table of the media hook was full."),
    gauge("connections", "open", "Open connections of the process that serves (gauge); earlier processes have their own."),
    counter("connections", "accepted", "Connections opened by peers."),
    counter("connections", "opened", "Connections that the server started to open."),
    counter("connections", "refused_total", "Connections refused because of tcp.connections.").named("connections_refused_limit"),
    counter("connections", "refused_source", "Connections refused because of tcp.per_source."),
    counter("connections", "refused_transport", "Connections closed because tls.connections or websocket.connections was reached."),
    counter("connections", "refused_banned", "Connections refused or closed because their source is banned."),
    counter("connections", "accept_errors", "Failures to accept a connection."),
    counter("connections", "connect_failures", "Connections that could not be opened."),
    counter("connections", "connect_timeouts", "Connections that could not be opened within tcp.connect_timeout."),
    counter("connections", "proxied", "Connections whose PROXY header was read (tcp.proxy_protocol_from)."),
    counter("connections", "proxy_header_failures", "Connections of balancers that did not begin with a PROXY header, or not within tcp.connect_timeout."),
    counter("connections", "proxy_refused_total", "TCP connections of balancers closed because too many PROXY headers and handshakes were awaited.").named("connections_proxy_refused_limit"),
    counter("connections", "proxy_refused_source", "TCP connections of balancers closed because too many PROXY headers and handshakes of one source were awaited."),
    counter("connections", "tls_handshakes", "TLS handshakes that succeeded, in both directions."),
    counter("connections", "tls_resumed", "Part of tls_handshakes: those that continued an earlier session, which is cheaper."),
    counter("connections", "tls_failures", "TLS handshakes that failed."),
    counter("connections", "tls_timeouts", "TLS handshakes of clients that did not end within tcp.connect_timeout."),
    counter("connections", "tls_refused_total", "Connections closed because too many handshakes were in progress.").named("connections_tls_refused_limit"),
    counter("connections", "tls_refused_source", "Connections closed because too many handshakes of one source were in progress."),
    counter("connections", "ws_opened", "WebSockets opened."),
    counter("connections", "ws_refused", "Requests for a WebSocket that were refused."),
    counter("connections", "ws_timeouts", "Requests for a WebSocket that did not end within tcp.connect_timeout."),
    counter("connections", "ws_unanswered", "WebSockets closed because a ping was not answered."),
    counter("connections", "ws_refused_total", "Connections to a ws address closed because too many handshakes and upgrades were in progress.").named("connections_ws_refused_limit"),
    counter("connections", "ws_refused_source", "Connections to a ws address closed because too many handshakes and upgrades of one source were in progress."),
    counter("connections", "closed_by_peer", "Connections closed by peers."),
    counter("connections", "closed_broken", "Connections that broke, or whose peer did not acknowledge for tcp.user_timeout."),
    counter("connections", "closed_idle", "Connections closed after tcp.idle."),
    counter("connections", "closed_slow", "Connections on which a message took longer than tcp.message_timeout."),
    counter("connections", "closed_malformed", "Connections closed because they carried something other than SIP."),
    counter("connections", "send_overflow", "Connections closed because the peer did not read."),
    counter("connections", "closed_memory", "Connections closed because all connections together buffered too much."),
    counter("connections", "overload_pauses", "Connections not read for a while because they carried far more new work than the server can serve."),
    counter("connections", "messages_in", "Messages received."),
    counter("connections", "messages_out", "Messages sent."),
    counter("connections", "pings", "Keep-alives answered."),
    bytes("connections", "bytes_in", "Bytes received.").named("connections_received"),
    bytes("connections", "bytes_out", "Bytes accepted by the kernel.").named("connections_sent"),
    counter("connections", "handover_pauses", "Times that a connection was not read because another worker was behind."),
    counter("connections", "handover_overflow", "Lost messages for a connection of another worker."),
    counter("connections", "failure_notices", "Times that a shard was told that a connection could not be used."),
    counter("connections", "dns_refused", "DNS queries not made because too many waited."),
    gauge("transports", "tcp_open", "TCP: existing connections, including those being opened.").named("transports_open").labelled("transport", "tcp"),
    counter("transports", "tcp_accepted", "TCP: connections accepted.").named("transports_accepted").labelled("transport", "tcp"),
    counter("transports", "tcp_messages_in", "TCP: messages received.").named("transports_messages_in").labelled("transport", "tcp"),
    counter("transports", "tcp_messages_out", "TCP: messages sent.").named("transports_messages_out").labelled("transport", "tcp"),
    gauge("transports", "tls_open", "TLS: existing connections, including those being opened.").named("transports_open").labelled("transport", "tls"),
    counter("transports", "tls_accepted", "TLS: connections accepted.").named("transports_accepted").labelled("transport", "tls"),
    counter("transports", "tls_messages_in", "TLS: messages received.").named("transports_messages_in").labelled("transport", "tls"),
    counter("transports", "tls_messages_out", "TLS: messages sent.").named("transports_messages_out").labelled("transport", "tls"),
    gauge("transports", "ws_open", "WebSocket without TLS: existing connections, including those being opened.").named("transports_open").labelled("transport", "ws"),
    counter("transports", "ws_accepted", "WebSocket without TLS: connections accepted.").named("transports_accepted").labelled("transport", "ws"),
    counter("transports", "ws_messages_in", "WebSocket without TLS: messages received.").named("transports_messages_in").labelled("transport", "ws"),
    counter("transports", "ws_messages_out", "WebSocket without TLS: messages sent.").named("transports_messages_out").labelled("transport", "ws"),
    gauge("transports", "wss_open", "WebSocket over TLS: existing connections, including those being opened.").named("transports_open").labelled("transport", "wss"),
    counter("transports", "wss_accepted", "WebSocket over TLS: connections accepted.").named("transports_accepted").labelled("transport", "wss"),
    counter("transports", "wss_messages_in", "WebSocket over TLS: messages received.").named("transports_messages_in").labelled("transport", "wss"),
    counter("transports", "wss_messages_out", "WebSocket over TLS: messages sent.").named("transports_messages_out").labelled("transport", "wss"),
    counter("dns", "queries", "Queries."),
    counter("dns", "coalesced", "Part of queries: queries merged with an identical pending one."),
    counter("dns", "refused", "Queries refused because too many waited."),
    counter("dns", "answered", "Queries with an answer."),
    counter("dns", "not_found", "Names that do not exist, or have no address that this server can reach."),
    counter("dns", "timeouts", "Queries without an answer within dns.timeout."),
    gauge("names", "entries", "Names in the cache (gauge)."),
    counter("names", "hits", "Cache hits."),
    counter("names", "stale_hits", "Part of hits: hits with an expired answer (dns.serve_stale)."),
    counter("names", "misses", "Cache misses."),
    counter("names", "evicted", "Valid names evicted to make room."),
    gauge("targets", "avoided", "Next hops that failed recently and are tried last (gauge)."),
    counter("targets", "avoided_overflow", "Failed next hops that could not be remembered because the table of 4,096 was full."),
    gauge("targets", "balanced", "Targets of balancers (gauge)."),
    gauge("targets", "down", "Part of balanced: targets that are down by their probes (gauge)."),
    gauge("targets", "draining", "Part of balanced: drained targets (gauge)."),
    gauge("bans", "banned", "Addresses that are banned (gauge)."),
    gauge("bans", "suspects", "Addresses with recent failures or an earlier ban (gauge)."),
    counter("bans", "failures", "Failed authentications from proven addresses."),
    counter("bans", "begun", "Bans after too many failures."),
    counter("bans", "added", "Bans by a command."),
    counter("bans", "removed", "Bans ended by a command."),
    counter("bans", "ended", "Bans that ended in time."),
    counter("bans", "spared", "Times that an address had too many failures and was not banned because it is exempt."),
    counter("bans", "full", "Times that an address was not banned because 65,536 were."),
    counter("bans", "suspects_full", "Failures not counted because 65,536 addresses had some."),
    counter("cdr", "lost", "Call records that were not written."),
    counter("hep", "sent", "Messages sent to the HEP collector."),
    counter("hep", "dropped", "Messages not sent to the HEP collector because they came faster than they could be sent."),
    counter("hep", "failed", "Messages not sent to the HEP collector because it did not take them."),
    counter("otlp", "sent", "Spans that the OTLP collector took."),
    counter("otlp", "dropped", "Spans, messages and calls that were not traced for lack of room."),
    counter("otlp", "failed", "Spans that the OTLP collector refused, or that could not be sent before the server ended."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_counter_has_its_own_series() {
        let series: BTreeSet<_> = COUNTERS.iter().map(|counter| (counter.metric(), counter.label)).collect();
        assert_eq!(series.len(), COUNTERS.len());
        let kinds: BTreeSet<_> = COUNTERS.iter().map(|counter| (counter.metric(), counter.kind as u8)).collect();
        let metrics: BTreeSet<String> = COUNTERS.iter().map(Counter::metric).collect();
        assert_eq!(metrics.len(), kinds.len());
        let is_plain = |metric: &String| metric.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(metrics.iter().all(is_plain), "{metrics:?}");
        assert!(!metrics.iter().any(|metric| metric.ends_with("_total") || metric.ends_with("_bytes")), "{metrics:?}");
    }
}
