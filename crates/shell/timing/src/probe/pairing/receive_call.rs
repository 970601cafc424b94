//! A receive call, the messages that it returned, and the send calls that followed.

use crate::part::{Part, PartTimes};
use crate::probe::event::{Given, Queued, Received, Sent};
use crate::record::PacketRecord;

/// Maximum number of send calls after one receive call that are kept; further ones count only as sent.
const MAX_SENT: usize = 1_024;

/// A received message, and its packet in the socket's queue if that was found.
#[derive(Debug)]
pub(super) struct Packet {
    pub event: Received,
    pub queued: Option<Queued>,
}

impl Packet {
    /// Returns when the receiver could first have taken it, ns: the latest of its being queued, the beginning of its
    /// turn in the call, and the receiver's running after sleep.
    fn dequeued(&self) -> u64 {
        let queued = self.queued.map_or(0, |packet| packet.at);
        let ran = self.event.woken.map_or(0, |(_, ran)| ran);
        self.event.mark.max(queued).max(ran).min(self.event.at)
    }

    /// Returns the parts up to `end`, when the program had it, ns.
    fn times(&self, end: u64) -> PartTimes {
        let mut times = PartTimes::default();
        let dequeued = self.dequeued();
        // Otherwise the call may have waited for the packet, for as long as nobody knows.
        if self.queued.is_some() || self.event.woken.is_some() {
            times.set(Part::Copy, end - dequeued);
        }
        let Some(queued) = self.queued else { return times };
        times.set(Part::SocketQueue, dequeued - queued.at);
        if let Some((woken, ran)) = self.event.woken.filter(|(_, ran)| *ran >= queued.at) {
            times.set(Part::WakeUp, ran.min(dequeued).saturating_sub(woken.max(queued.at)));
        }
        if let Some(arrived) = queued.arrived.filter(|arrived| *arrived <= queued.at) {
            times.set(Part::Stack, queued.at - arrived);
            times.set(Part::Receive, end - arrived);
        }
        times
    }
}

/// A receive call that returned at least one message.
#[derive(Debug)]
pub(super) struct ReceiveCall {
    packets: Vec<Packet>,
    /// When it returned, ns.
    returned: Option<u64>,
    sent: Vec<Sent>,
    /// Messages of send calls that were not kept.
    also_sent: u32,
    /// When the thread was ready for the next one, ns.
    ready: Option<u64>,
    last_event_ns: u64,
}

impl ReceiveCall {
    pub(super) fn new(packet: Packet) -> Self {
        let last_event_ns = packet.event.at;
        Self { packets: vec![packet], returned: None, sent: Vec::new(), also_sent: 0, ready: None, last_event_ns }
    }

    /// Returns whether this call returned the packet.
    pub(super) fn is_of(&self, packet: &Packet) -> bool {
        packet.event.index > 0 && self.packets.last().is_some_and(|last| last.event.enter == packet.event.enter)
    }

    /// Adds a message that it returned.
    pub(super) fn add(&mut self, packet: Packet) {
        self.last_event_ns = packet.event.at;
        self.packets.push(packet);
    }

    /// Adds a send call. One after the thread was ready for the next packet is not because of this one.
    /// Only its messages are counted without `has_room` and after [`MAX_SENT`] others; returns whether it was kept.
    pub(super) fn add_sent(&mut self, sent: Sent, has_room: bool) -> bool {
        self.set_returned(sent.returned);
        if let Some(ready) = sent.ready {
            self.ready.get_or_insert(ready);
            return true;
        }
        self.last_event_ns = sent.exit;
        let is_kept = has_room && self.sent.len() < MAX_SENT;
        if is_kept {
            self.sent.push(sent);
        } else {
            self.also_sent += sent.messages;
        }
        is_kept
    }

    /// Returns the number of messages and send calls that it keeps.
    pub(super) fn size(&self) -> usize {
        self.packets.len() + self.sent.len()
    }

    /// Adds that a device took a packet; returns whether it belongs to this call.
    pub(super) fn add_given(&mut self, given: &Given) -> bool {
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.call == given.call) else { return false };
        sent.given += 1;
        sent.given_ns += given.ns;
        true
    }

    /// Ends it with the next message that its thread received.
    pub(super) fn end(&mut self, next: &Received) {
        self.set_returned(next.returned);
        self.ready.get_or_insert(next.ready);
    }

    /// Returns whether devices have taken all that was sent.
    pub(super) fn is_complete(&self) -> bool {
        self.sent.iter().all(|sent| sent.given >= sent.queued)
    }

    /// Returns the time of its last event, ns.
    pub(super) fn last_event_ns(&self) -> u64 {
        self.last_event_ns
    }

    fn set_returned(&mut self, returned: Option<u64>) {
        let end = self.packets.last().map_or(0, |packet| packet.event.at);
        self.returned = self.returned.or(returned.filter(|returned| *returned >= end));
    }

    /// Makes a record of each packet.
    pub(super) fn records(self) -> impl Iterator<Item = PacketRecord> {
        let count = self.packets.len();
        let batch = u16::try_from(count).unwrap_or(u16::MAX);
        let last_end = self.packets.last().map_or(0, |packet| packet.event.at);
        let returned = self.returned.unwrap_or(last_end);
        let messages = self.sent.iter().map(|sent| sent.messages).sum::<u32>() + self.also_sent;
        let shares = shares(&self.sent, returned, count);
        self.packets.into_iter().zip(shares).enumerate().map(move |(index, (packet, share))| {
            let end = if count == 1 { returned } else { packet.event.at };
            let mut times = packet.times(end);
            if let Some(share) = share {
                share.add_to(&mut times, returned - end);
            }
            PacketRecord {
                arrived_ns: packet.queued.and_then(|queued| queued.arrived),
                received_ns: end,
                thread: packet.event.thread,
                port: packet.event.port,
                is_stream: packet.event.is_stream,
                length: packet.event.length,
                message: packet.event.message,
                times,
                batch,
                sent: sent_by(messages, index, count),
                ready_ns: self.ready.filter(|_| index + 1 == count),
                queue: Some(packet.event.queue),
            }
        })
    }
}

/// Returns the number of messages sent that count for the packet at `index` of `count`.
fn sent_by(messages: u32, index: usize, count: usize) -> u16 {
    let (messages, count, index) = (u64::from(messages), count as u64, index as u64);
    let share = messages / count + u64::from(index < messages % count);
    u16::try_from(share).unwrap_or(u16::MAX)
}

/// What one packet of a receive call needed after the call's return, ns.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// From the return of the call until its turn.
    wait: u64,
    application: u64,
    send_wait: u64,
    send_call: u64,
    /// From the beginning of its message to the device.
    send: Option<u64>,
}

impl Share {
    /// Adds its times; `rest` is the time from the packet's receipt to the return of the receive call, ns.
    fn add_to(self, times: &mut PartTimes, rest: u64) {
        times.set(Part::ReceiveBatch, rest + self.wait);
        times.set(Part::SendBatch, self.send_wait);
        times.set(Part::Application, self.application);
        times.set(Part::SendCall, self.send_call);
        if let Some(send) = self.send {
            times.set(Part::Send, send);
        }
    }
}

/// Returns the share of each of `count` packets that were received until `returned`; none if nothing was sent.
fn shares(sent: &[Sent], returned: u64, count: usize) -> Vec<Option<Share>> {
    let sent: Vec<_> = sent.iter().filter(|sent| sent.enter >= returned).collect();
    let is_one_each = sent.len() == count && sent.iter().all(|sent| sent.messages == 1);
    match sent.as_slice() {
        [] => vec![None; count],
        [first, ..] if count == 1 => vec![Some(alone(first, returned))],
        _ if is_one_each => one_each(&sent, returned),
        [all] => together(all, returned, count),
        _ => evenly(&sent, returned, count),
    }
}

fn mean_send<'a>(sent: impl Iterator<Item = &'a Sent>) -> Option<u64> {
    let (given, sum) = sent.fold((0, 0), |(given, sum), sent| (given + u64::from(sent.given), sum + sent.given_ns));
    sum.checked_div(given)
}

/// One packet: its first send call ends T_sip.
fn alone(first: &Sent, returned: u64) -> Share {
    Share {
        wait: 0,
        application: first.enter - returned,
        send_wait: 0,
        send_call: first.exit - first.enter,
        send: mean_send([first].into_iter()),
    }
}

/// Several packets, each with a send call of its own: a packet's turn begins when the previous one's call returns.
fn one_each(sent: &[&Sent], returned: u64) -> Vec<Option<Share>> {
    let begins = [returned].into_iter().chain(sent.iter().map(|sent| sent.exit));
    let share = |(sent, begin): (&&Sent, u64)| Share {
        wait: begin - returned,
        application: sent.enter.saturating_sub(begin),
        send_call: sent.exit - sent.enter,
        send: mean_send([*sent].into_iter()),
        send_wait: 0,
    };
    sent.iter().zip(begins).map(|pair| Some(share(pair))).collect()
}

/// Several packets and one send call: they were processed one after the other, equally long, and then sent.
fn together(sent: &Sent, returned: u64, count: usize) -> Vec<Option<Share>> {
    let packets = count as u64;
    let application = (sent.enter - returned) / packets;
    let share = |index: u64| Share {
        wait: index * application,
        application,
        send_wait: (packets - 1 - index) * application,
        send_call: (sent.exit - sent.enter) / packets,
        send: mean_send([sent].into_iter()),
    };
    (0..packets).map(|index| Some(share(index))).collect()
}

/// Several packets and another number of send calls: each packet has an equal share of the time in and between them.
fn evenly(sent: &[&Sent], returned: u64, count: usize) -> Vec<Option<Share>> {
    let packets = count as u64;
    let begins = [returned].into_iter().chain(sent.iter().map(|sent| sent.exit));
    let application =
        sent.iter().zip(begins).map(|(sent, begin)| sent.enter.saturating_sub(begin)).sum::<u64>() / packets;
    let send_call = sent.iter().map(|sent| sent.exit - sent.enter).sum::<u64>() / packets;
    let send = mean_send(sent.iter().copied());
    let share =
        |index: u64| Share { wait: index * (application + send_call), application, send_wait: 0, send_call, send };
    (0..packets).map(|index| Some(share(index))).collect()
}
