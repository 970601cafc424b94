//! A shard scripted by the Call-ID of each message: `<shard> <verb> …`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_foundation::{ConnId, Flow, HostId, ListenerId, ShardId, Timestamp, Transport, Wakeup};
use strowger_locate::{LocateQuery, QueryId};
use strowger_message::{Fault, PartialPeek, Peek};
use strowger_overload::{Class, ControllerStatus, FilteredKind};
use strowger_shard::{Classification, Counters, Event, Input, Inquiry, Output, Snapshot, SteeringResult};

use crate::shard_factory::{ShardFactory, StateMachine};

/// Time that a shard works on the verb `toil`: much longer than everything else a message costs.
const TOIL: Duration = Duration::from_millis(1);

/// Factory for scripted shards.
pub(super) struct ScriptedShardFactory;

impl ShardFactory for ScriptedShardFactory {
    type Shard = ScriptedShard;

    fn make(&self, id: ShardId, life: u32, snapshot: Arc<Snapshot>) -> ScriptedShard {
        let streams = snapshot.listeners.get(ListenerId(1)).map_or(Transport::Tcp, |listener| listener.transport);
        ScriptedShard { id, life, streams, ..ScriptedShard::default() }
    }

    fn owner(&self, partial: &PartialPeek<'_>, _: &Snapshot) -> Option<(ShardId, SteeringResult)> {
        let call_id = std::str::from_utf8(partial.call_id).ok()?;
        assert_ne!(call_id, "steering-bug", "a planted bug");
        let shard = call_id.split('-').next()?.parse().ok()?;
        Some((ShardId(shard), SteeringResult::default()))
    }

    fn complete(&self, _: &Peek<'_>, _: &mut SteeringResult) {}

    fn note_pressure(&self, _: usize, _: &ControllerStatus) {}

    fn is_known(&self, _: IpAddr, _: &Snapshot) -> bool {
        true
    }

    fn classify(&self, _: Timestamp, _: (&Peek<'_>, &SteeringResult), _: &Flow, _: &Snapshot) -> Classification {
        Classification { class: Class::Call, kind: FilteredKind::Call, is_unlimited: false, is_proven: true }
    }
}

/// The scripted shard.
#[derive(Debug, Default)]
pub(super) struct ScriptedShard {
    id: ShardId,
    life: u32,
    /// Transport of the second listener.
    streams: Transport,
    counters: Counters,
    transactions: usize,
    outputs: VecDeque<(Option<Flow>, [u8; 64], usize)>,
    events: VecDeque<Event>,
    timer: Option<(Timestamp, Flow)>,
    panics_at_drain: bool,
    panics_at_counters: bool,
    /// Flow notified when a port is unreachable.
    reports_to: Option<(Flow, u16)>,
    kept: Option<Flow>,
    /// Flow notified of closed connections and query results.
    watches: Option<Flow>,
    closed: Option<ConnId>,
    questions: VecDeque<(QueryId, LocateQuery)>,
}

impl ScriptedShard {
    fn say(&mut self, flow: Flow, what: std::fmt::Arguments<'_>) {
        let mut text = [0; 64];
        let mut rest = text.as_mut_slice();
        std::io::Write::write_fmt(&mut rest, what).expect("short");
        let length = 64 - rest.len();
        self.outputs.push_back((Some(flow), text, length));
    }

    fn execute(&mut self, now: Timestamp, flow: Flow, call_id: &str) {
        let (id, life, count) = (self.id.0, self.life, self.counters.requests);
        let mut words = call_id.split('-').skip(1);
        match words.next() {
            Some("bug") => panic!("a planted bug"),
            Some("drainbug") => self.panics_at_drain = true,
            Some("countbug") => self.panics_at_counters = true,
            Some("timer") => self.timer = Some((now + Duration::from_millis(20), flow)),
            Some("timerbug") => self.timer = Some((now, Flow { listener: ListenerId(77), ..flow })),
            Some("begin") => self.transactions += 1,
            Some("toil") => {
                let began = Instant::now();
                while began.elapsed() < TOIL {
                    std::hint::spin_loop();
                }
            }
            Some("nowhere") => self.say(Flow { listener: ListenerId(99), ..flow }, format_args!("?")),
            Some("events") => {
                let event = Event::Malformed { peer: flow.peer, transport: flow.transport, fault: Fault::StartLine };
                self.events.extend([event.clone(), event.clone(), event]);
            }
            Some("dead") => {
                let port = words.next().and_then(|port| port.parse().ok()).expect("a port");
                self.reports_to = Some((flow, port));
                let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                self.say(Flow { peer, ..flow }, format_args!("anybody there?"));
                return;
            }
            Some("watch") => self.watches = Some(flow),
            // Sends to a peer on any connection: "call-PORT-COUNT".
            Some("call") => {
                let (port, count) = (number(words.next()), words.next().map_or(1, |count| number(Some(count))));
                let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let by = Flow::new(ListenerId(1), self.streams, peer);
                (0..count).for_each(|_| self.say(by, format_args!("hello from {id}")));
            }
            // The same, to the peer with a name: "named-NUMBER-PORT".
            Some("named") => {
                let (host, port) = (number(words.next()), number(words.next()));
                let by = Flow::new(ListenerId(1), self.streams, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                self.say(Flow { host: HostId(host.into()), ..by }, format_args!("hello from {id}"));
            }
            Some("who") => return self.say(flow, format_args!("trunk {}", flow.host.0)),
            // Stores the flow of this message for sending later.
            Some("keep") => self.kept = Some(flow),
            Some("again") => {
                let kept = self.kept.expect("it was kept");
                let reopen = words.next() == Some("reopen");
                self.say(Flow { reopen, ..kept }, format_args!("again"));
            }
            Some("ask") => {
                let question =
                    LocateQuery { host: b"example.com"[..].into(), port: None, transport: None, is_secure: false };
                self.questions.push_back((QueryId(7), question));
            }
            Some("flood") => {
                for _ in 0..number(words.next()) {
                    self.say(flow, format_args!("{:-<60}", "flood"));
                }
            }
            _ => {}
        }
        self.say(flow, format_args!("{call_id} shard {id} life {life} count {count}"));
    }
}

fn number(word: Option<&str>) -> u16 {
    word.and_then(|word| word.parse().ok()).expect("a number")
}

impl StateMachine for ScriptedShard {
    fn prefetch(&self, peek: &Peek<'_>, _: &SteeringResult) {
        assert!(!peek.call_id.ends_with(b"foresightbug"), "a planted bug");
    }

    fn handle_input(&mut self, now: Timestamp, input: Input<'_>) {
        match input {
            Input::Message { arrival, flow, peek, .. } => {
                assert!(arrival <= now);
                self.counters.requests += 1;
                if flow.connection.is_some() && flow.connection == self.closed {
                    self.watches.into_iter().for_each(|watcher| self.say(watcher, format_args!("too late")));
                }
                self.execute(now, flow, std::str::from_utf8(peek.call_id).expect("text"));
            }
            Input::Unreachable { peer } => {
                if let Some((flow, _)) = self.reports_to.take_if(|(_, port)| *port == peer.port()) {
                    self.say(flow, format_args!("lost {}", peer.port()));
                }
            }
            Input::SendFailed { peer } => {
                if let Some((flow, _)) = self.reports_to.take_if(|(_, port)| *port == peer.port()) {
                    self.say(flow, format_args!("unsent {}", peer.port()));
                }
            }
            Input::Closed { peer, connection } => {
                self.closed = Some(connection);
                if let Some(flow) = self.watches {
                    self.say(flow, format_args!("closed {}", peer.port()));
                }
            }
            Input::ConnectFailed { flow: lost } => {
                if let Some(flow) = self.watches {
                    self.say(flow, format_args!("unconnected {}", lost.peer.port()));
                }
            }
            Input::Resolved { query, answer } => {
                if let Some(flow) = self.watches {
                    self.say(flow, format_args!("resolved {} {}", query.0, answer.is_ok()));
                }
            }
            // It asks no engine.
            Input::Media { .. } => {}
            Input::Stored { ticket, record, is_durable: kept } => {
                if let Some(flow) = self.watches {
                    self.say(flow, format_args!("stored {ticket} {} {kept}", String::from_utf8_lossy(&record)));
                }
            }
            Input::BarUser { aor } => {
                if let Some(flow) = self.watches {
                    self.say(flow, format_args!("forget {}", String::from_utf8_lossy(aor)));
                }
            }
            Input::EndCall { .. } | Input::HandedOver | Input::CallTransferred { .. } => {}
            Input::Unregister { aor, contact } => {
                if let Some(flow) = self.watches {
                    let contact = String::from_utf8_lossy(contact.unwrap_or(b"all"));
                    self.say(flow, format_args!("unregister {} {contact}", String::from_utf8_lossy(aor)));
                }
            }
            Input::Config(snapshot) => {
                self.counters.responses += 1;
                if snapshot.is_draining {
                    self.transactions = 0;
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        if let Some((_, flow)) = self.timer.take_if(|(at, _)| *at <= now) {
            assert_ne!(flow.listener.0, 77, "a planted bug");
            self.say(flow, format_args!("ring"));
        }
    }

    fn poll_output(&mut self, out: &mut Vec<u8>) -> Option<Output> {
        assert!(out.is_empty());
        if let Some(event) = self.events.pop_front() {
            return Some(Output::Event(event));
        }
        if let Some((query, question)) = self.questions.pop_front() {
            return Some(Output::Ask(Inquiry::Dns { query, question }));
        }
        let (flow, text, length) = self.outputs.pop_front()?;
        assert!(!self.panics_at_drain, "a planted bug");
        // Each buffer grows once, so that the length of the texts may vary.
        out.reserve(text.len());
        out.extend_from_slice(&text[..length]);
        flow.map(|flow| Output::Send { flow })
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.timer.map(|(at, _)| Wakeup::at(at, "a test"))
    }

    fn counters(&self) -> Counters {
        assert!(!self.panics_at_counters, "a planted bug");
        self.counters
    }

    fn unanswered(&self) -> usize {
        self.transactions()
    }

    fn for_each_call(&self, _visit: &mut dyn FnMut(strowger_calls::CallView<'_>)) {}

    fn for_each_account(&self, _now: Timestamp, _visit: &mut dyn FnMut(&str, strowger_trunk::Status)) {}

    fn transactions(&self) -> usize {
        self.transactions
    }
}
