use proptest::prelude::*;

use super::*;
use crate::message_type::MessageType;
use crate::part::Part;
use crate::probe::event::Queued;

const SOCKET: u64 = 9;

/// Events of a program, in µs of virtual time.
#[derive(Default)]
struct Program {
    pairing: Pairing,
}

/// A receive call by thread `thread` that returns one message of `length` bytes.
fn received(thread: u32, enter: u64, at: u64, length: u32, queue: u32) -> Received {
    Received {
        thread,
        socket: SOCKET,
        port: 5060,
        is_stream: false,
        at: at * 1_000,
        enter: enter * 1_000,
        mark: enter * 1_000,
        index: 0,
        woken: None,
        ready: enter * 1_000,
        returned: None,
        length,
        queue,
        stream_end: 0,
        message: MessageType::Other,
    }
}

fn sent(thread: u32, call: u32, enter: u64, exit: u64, messages: u32) -> Sent {
    let (given, given_ns) = (messages, u64::from(messages) * 2_000);
    Sent {
        thread,
        call,
        enter: enter * 1_000,
        exit: exit * 1_000,
        returned: None,
        messages,
        queued: messages,
        given,
        given_ns,
        ready: None,
    }
}

impl Program {
    /// A packet that reached the device 1 µs before it is queued.
    fn queue(&mut self, at: u64, length: u32) {
        let (at, arrived) = (at * 1_000, Some((at - 1) * 1_000));
        self.pairing.handle_event(Event::Queued(Queued { socket: SOCKET, at, arrived, length, stream_end: 0 }));
    }

    fn receive(&mut self, event: Received) {
        self.pairing.handle_event(Event::Received(event));
    }

    fn send(&mut self, event: Sent) {
        self.pairing.handle_event(Event::Sent(event));
    }

    /// Ends the run; returns all records in the order of their receipt.
    fn records(mut self) -> Vec<PacketRecord> {
        self.pairing.handle_end();
        let mut records: Vec<_> = std::iter::from_fn(|| self.pairing.poll_record()).collect();
        records.sort_by_key(|record| record.received_ns);
        records
    }
}

/// Returns a part, µs.
fn part(record: &PacketRecord, part: Part) -> Option<u64> {
    record.times.get(part).map(|nanos| nanos / 1_000)
}

fn parts<const COUNT: usize>(record: &PacketRecord, names: [Part; COUNT]) -> [Option<u64>; COUNT] {
    names.map(|name| part(record, name))
}

#[test]
fn a_packet_that_waited_while_the_program_was_busy() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.receive(received(1, 130, 132, 40, 0));
    program.send(Sent { returned: Some(133_000), ..sent(1, 1, 143, 150, 1) });
    program.receive(received(1, 151, 400, 40, 0));
    let record = &program.records()[0];
    assert_eq!(
        parts(record, [Part::Stack, Part::SocketQueue, Part::Copy, Part::Receive, Part::WakeUp]),
        [Some(1), Some(30), Some(3), Some(34), None]
    );
    assert_eq!(
        parts(record, [Part::Application, Part::Send, Part::SendCall, Part::ReceiveBatch]),
        [Some(10), Some(2), Some(7), Some(0)]
    );
    assert_eq!((record.batch, record.sent, record.ready_ns), (1, 1, Some(151_000)));
}

#[test]
fn a_packet_that_woke_the_receiver() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.receive(Received { woken: Some((101_000, 108_000)), ..received(1, 20, 110, 40, 0) });
    let record = &program.records()[0];
    assert_eq!(parts(record, [Part::SocketQueue, Part::WakeUp, Part::Copy]), [Some(8), Some(7), Some(2)]);
}

#[test]
fn the_wake_up_by_an_earlier_packet_is_not_counted() {
    let mut program = Program::default();
    program.queue(200, 40);
    program.receive(Received { woken: Some((101_000, 108_000)), ..received(1, 210, 212, 40, 0) });
    assert_eq!(parts(&program.records()[0], [Part::SocketQueue, Part::WakeUp]), [Some(10), None]);
}

#[test]
fn receivers_that_finish_in_another_order_have_their_own_packets() {
    let mut program = Program::default();
    program.queue(80, 40);
    program.receive(received(1, 81, 82, 40, 0));
    program.queue(100, 40);
    program.queue(102, 50);
    program.receive(received(2, 90, 105, 50, 0));
    program.receive(received(1, 90, 107, 40, 0));
    let arrived: Vec<_> = program.records().iter().map(|record| record.arrived_ns).collect();
    assert_eq!(arrived, [Some(79_000), Some(101_000), Some(99_000)]);
}

#[test]
fn one_request_with_two_messages_sent() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.receive(received(1, 101, 102, 40, 0));
    program.send(Sent { returned: Some(102_000), ..sent(1, 1, 110, 115, 1) });
    program.send(Sent { returned: Some(102_000), ..sent(1, 2, 130, 135, 1) });
    program.receive(Received { returned: Some(102_000), ..received(1, 136, 200, 40, 0) });
    let record = &program.records()[0];
    assert_eq!((part(record, Part::Application), record.sent), (Some(8), 2));
}

#[test]
fn a_packet_without_an_answer_has_no_t_sip_and_does_not_get_the_next_ones() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.queue(100, 40);
    program.receive(received(1, 101, 102, 40, 1));
    program.receive(Received { returned: Some(103_000), ..received(1, 120, 122, 40, 0) });
    program.send(Sent { returned: Some(123_000), ..sent(1, 1, 130, 135, 1) });
    let records = program.records();
    assert_eq!(parts(&records[0], [Part::Application, Part::SendCall]), [None, None]);
    assert_eq!((records[0].sent, records[1].sent, part(&records[1], Part::Application)), (0, 1, Some(7)));
}

#[test]
fn what_a_timer_sends_is_not_because_of_the_packet_before() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.queue(100, 50);
    // The first is absorbed without an answer; the thread waits from 120 on, and a timer sends twice.
    program.receive(received(1, 101, 102, 40, 1));
    for (call, enter) in [(1, 50_000), (2, 90_000)] {
        let ready = Some(120_000);
        program.send(Sent { returned: Some(103_000), ready, ..sent(1, call, enter, enter + 5, 1) });
    }
    let event = received(1, 95_000, 95_001, 50, 0);
    program.receive(Received { returned: Some(103_000), ready: 120_000, ..event });
    program.send(Sent { returned: Some(95_001_000), ..sent(1, 3, 95_011, 95_015, 1) });
    // After the answer, a timer sends once more.
    program.send(Sent { returned: Some(95_001_000), ready: Some(95_016_000), ..sent(1, 4, 99_000, 99_001, 1) });
    let records = program.records();
    assert_eq!(parts(&records[0], [Part::Application, Part::Send, Part::SendCall]), [None; 3]);
    assert_eq!((records[0].sent, records[0].ready_ns), (0, Some(120_000)));
    assert_eq!((records[1].sent, part(&records[1], Part::Application)), (1, Some(10)));
    assert_eq!(records[1].ready_ns, Some(95_016_000));
}

#[test]
fn sending_without_receiving_makes_no_record() {
    let mut program = Program::default();
    program.send(sent(1, 1, 110, 115, 1));
    assert_eq!(program.records(), []);
}

#[test]
fn each_thread_has_its_own_send_calls() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.queue(100, 50);
    program.receive(received(1, 101, 102, 40, 1));
    program.receive(received(2, 101, 103, 50, 0));
    program.send(Sent { returned: Some(103_000), ..sent(2, 1, 110, 115, 1) });
    program.send(Sent { returned: Some(102_000), ..sent(1, 1, 142, 150, 1) });
    let times: Vec<_> = program.records().iter().map(|record| part(record, Part::Application)).collect();
    assert_eq!(times, [Some(40), Some(7)]);
}

/// A call that enters at 200 µs and returns three packets, which were queued before; the copies take 2 µs each.
fn batch_of_three(program: &mut Program) {
    for at in [100, 110, 120] {
        program.queue(at, 40);
    }
    for index in 0..3_u16 {
        let begin = 200 + 2 * u64::from(index);
        program.receive(Received {
            index,
            mark: begin * 1_000,
            ..received(1, 200, begin + 2, 40, 2 - u32::from(index))
        });
    }
}

#[test]
fn a_batch_answered_with_one_call_shares_the_time() {
    let mut program = Program::default();
    batch_of_three(&mut program);
    program.send(Sent { returned: Some(206_000), ..sent(1, 1, 236, 242, 3) });
    let records = program.records();
    let of = |name| records.iter().map(|record| part(record, name)).collect::<Vec<_>>();
    assert_eq!(of(Part::SocketQueue), [Some(100), Some(92), Some(84)]);
    assert_eq!(of(Part::Copy), [Some(2); 3]);
    assert_eq!(of(Part::Application), [Some(10); 3]);
    assert_eq!(of(Part::ReceiveBatch), [Some(4), Some(12), Some(20)]);
    assert_eq!(of(Part::SendBatch), [Some(20), Some(10), Some(0)]);
    assert_eq!(of(Part::SendCall), [Some(2); 3]);
    assert!(records.iter().all(|record| record.batch == 3 && record.sent == 1));
}

#[test]
fn the_thread_is_ready_again_after_the_last_packet_of_a_batch_only() {
    let mut program = Program::default();
    batch_of_three(&mut program);
    program.receive(received(1, 250, 400, 40, 0));
    let ready: Vec<_> = program.records().iter().map(|record| record.ready_ns).collect();
    assert_eq!(ready, [None, None, Some(250_000), None]);
}

#[test]
fn a_batch_answered_one_by_one_has_the_time_of_each() {
    let mut program = Program::default();
    batch_of_three(&mut program);
    for (call, (enter, exit)) in [(216, 220), (240, 245), (250, 260)].into_iter().enumerate() {
        program.send(Sent { returned: Some(206_000), ..sent(1, call as u32, enter, exit, 1) });
    }
    let records = program.records();
    let of = |name| records.iter().map(|record| part(record, name)).collect::<Vec<_>>();
    assert_eq!(of(Part::Application), [Some(10), Some(20), Some(5)]);
    assert_eq!(of(Part::ReceiveBatch), [Some(4), Some(16), Some(39)]);
    assert_eq!(of(Part::SendCall), [Some(4), Some(5), Some(10)]);
}

#[test]
fn a_batch_with_fewer_calls_than_packets_shares_them_evenly() {
    let mut program = Program::default();
    batch_of_three(&mut program);
    program.send(Sent { returned: Some(206_000), ..sent(1, 1, 216, 219, 2) });
    program.send(Sent { returned: Some(206_000), ..sent(1, 2, 239, 242, 2) });
    let records = program.records();
    let of = |name| records.iter().map(|record| part(record, name)).collect::<Vec<_>>();
    assert_eq!((of(Part::Application), of(Part::SendCall)), (vec![Some(10); 3], vec![Some(2); 3]));
    assert_eq!(records.iter().map(|record| record.sent).collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn a_device_may_take_a_packet_after_the_call_or_before_its_return() {
    let mut program = Program::default();
    let late = |call, at, ns| Event::Given(Given { thread: 1, call, at, ns });
    program.queue(100, 40);
    program.receive(received(1, 101, 102, 40, 0));
    program.send(Sent { returned: Some(102_000), given: 0, given_ns: 0, ..sent(1, 1, 110, 115, 1) });
    program.queue(120, 40);
    program.receive(Received { returned: Some(102_000), ..received(1, 121, 122, 40, 0) });
    program.pairing.handle_event(late(2, 131_000, 1_000));
    program.send(Sent { returned: Some(122_000), given: 0, given_ns: 0, ..sent(1, 2, 130, 135, 1) });
    program.pairing.handle_event(late(1, 310_000, 200_000));
    let sends: Vec<_> = program.records().iter().map(|record| part(record, Part::Send)).collect();
    assert_eq!(sends, [Some(200), Some(1)]);
}

#[test]
fn a_device_that_never_takes_a_packet_delays_the_record_by_a_second() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.receive(received(1, 101, 102, 40, 0));
    program.send(Sent { returned: Some(102_000), given: 0, given_ns: 0, ..sent(1, 1, 110, 115, 1) });
    program.queue(120, 40);
    program.receive(Received { returned: Some(102_000), ..received(1, 121, 122, 40, 0) });
    program.pairing.handle_timeout(900_000_000);
    assert_eq!(program.pairing.poll_record(), None);
    program.pairing.handle_timeout(1_100_000_000);
    let record = program.pairing.poll_record().expect("the first call has ended");
    assert_eq!(parts(&record, [Part::Application, Part::Send]), [Some(8), None]);
    assert_eq!(program.pairing.poll_record(), None);
}

#[test]
fn events_of_several_processors_are_put_in_order() {
    let mut program = Program::default();
    program.receive(received(1, 90, 103, 40, 0));
    program.queue(100, 40);
    assert_eq!(part(&program.records()[0], Part::SocketQueue), Some(0));
}

#[test]
fn packets_before_the_start_do_not_shift_those_after_it() {
    let mut program = Program::default();
    // Two packets of the same length were in the queue before the probe started.
    program.queue(100, 40);
    program.receive(received(1, 101, 102, 40, 2));
    program.receive(received(1, 103, 104, 40, 1));
    program.receive(received(1, 105, 106, 40, 0));
    let queues: Vec<_> = program.records().iter().map(|record| part(record, Part::SocketQueue)).collect();
    assert_eq!(queues, [None, None, Some(5)]);
}

#[test]
fn a_packet_that_arrived_unseen_has_no_copy_time() {
    let mut program = Program::default();
    // The call waited for it from 100 to nobody knows when.
    program.receive(received(1, 100, 15_000, 40, 0));
    program.queue(15_010, 40);
    program.receive(received(1, 15_005, 15_012, 40, 0));
    let copies: Vec<_> = program.records().iter().map(|record| part(record, Part::Copy)).collect();
    assert_eq!(copies, [None, Some(2)]);
}

#[test]
fn after_a_loss_packets_are_paired_by_the_kernels_count() {
    let mut program = Program::default();
    for at in 100..110 {
        program.queue(at, 40);
    }
    program.receive(received(1, 120, 121, 40, 9));
    program.pairing.handle_timeout(10_000_000);
    program.pairing.handle_loss();
    // The next packet is one of those that were forgotten; the one after it is the only one that is known.
    program.queue(10_000, 40);
    program.receive(received(1, 10_001, 10_002, 40, 1));
    program.receive(received(1, 10_003, 10_004, 40, 0));
    assert_eq!(program.pairing.unpaired(), 0);
    let queues: Vec<_> = program.records().iter().map(|record| part(record, Part::SocketQueue)).collect();
    assert_eq!(queues, [Some(20), None, Some(3)]);
}

#[test]
fn after_a_loss_what_a_thread_does_is_not_because_of_its_last_known_packet() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.receive(received(1, 110, 111, 40, 0));
    program.send(sent(1, 0, 115, 118, 1));
    program.pairing.handle_loss();
    // The thread has received a packet that is not known, and answers it.
    program.send(Sent { returned: Some(500_000), ..sent(1, 1, 520, 530, 1) });
    program.queue(1_000, 40);
    program.receive(received(1, 1_001, 1_002, 40, 0));
    let records = program.records();
    assert_eq!(records.iter().map(|record| record.sent).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(parts(&records[0], [Part::Receive, Part::Application]), [Some(12), Some(4)]);
}

#[test]
fn packets_that_left_the_queue_without_being_received_are_forgotten() {
    let mut program = Program::default();
    for at in [100, 101, 102] {
        program.queue(at, 40);
    }
    // The first two were dropped for a wrong checksum after the first message.
    let mut now = 200;
    program.receive(received(1, now, now + 1, 40, 0));
    for _ in 0..40 {
        now += 100;
        program.queue(now, 40);
        program.receive(received(1, now + 1, now + 2, 40, 0));
    }
    let records = program.records();
    assert_eq!(part(records.last().unwrap(), Part::SocketQueue), Some(1));
}

#[test]
fn a_message_cut_by_a_small_buffer_is_the_oldest_packet() {
    let mut program = Program::default();
    program.queue(100, 400);
    program.receive(received(1, 110, 111, 64, 0));
    assert_eq!(part(&program.records()[0], Part::SocketQueue), Some(10));
}

#[test]
fn bytes_of_a_stream_belong_to_the_segment_with_their_first_byte() {
    let mut pairing = Pairing::default();
    let segment = |at: u64, stream_end| {
        let (at, arrived) = (at * 1_000, Some((at - 1) * 1_000));
        Event::Queued(Queued { socket: SOCKET, at, arrived, length: 0, stream_end })
    };
    let read = |at, length, stream_end| {
        Event::Received(Received { is_stream: true, stream_end, ..received(1, at - 1, at, length, 0) })
    };
    // The sequence number wraps between the two segments.
    pairing.handle_event(segment(100, u32::MAX - 9));
    pairing.handle_event(segment(110, 90));
    pairing.handle_event(read(120, 60, u32::MAX - 49));
    pairing.handle_event(read(130, 80, 30));
    pairing.handle_event(read(140, 60, 90));
    let records = Program { pairing }.records();
    let arrived: Vec<_> = records.iter().map(|record| record.arrived_ns.unwrap() / 1_000).collect();
    assert_eq!(arrived, [99, 99, 109]);
    assert!(records.iter().all(|record| record.is_stream));
}

#[test]
fn records_come_while_the_program_runs() {
    let mut program = Program::default();
    program.queue(100, 40);
    program.receive(received(1, 101, 102, 40, 0));
    program.pairing.handle_timeout(1_000_000_000);
    assert_eq!(program.pairing.poll_record(), None);
    program.pairing.handle_timeout(11_000_000_000);
    assert!(program.pairing.poll_record().is_some());
}

/// A program beside a probe whose tables have room for two entries each.
fn with_small_tables() -> Program {
    let limits = Limits { sockets: 2, queued: 2, threads: 2, open: 2, events: 2 };
    Program { pairing: Pairing { limits, ..Pairing::default() } }
}

/// Events of virtual time until `at`, µs, are paired.
fn pass(program: &mut Program, at: u64) {
    program.pairing.handle_timeout(at * 1_000 + 2_000_000);
}

#[test]
fn a_full_queue_is_forgotten_and_known_again_by_the_kernels_count() {
    let mut program = with_small_tables();
    for at in [100, 101, 102] {
        program.queue(at, 40);
        pass(&mut program, at);
    }
    assert_eq!(program.pairing.overflows(), Overflows { queued: 1, ..Overflows::default() });
    for (at, queue) in [(110, 2), (112, 1), (114, 0)] {
        program.receive(received(1, at, at + 1, 40, queue));
        pass(&mut program, at + 1);
    }
    program.queue(5_000, 40);
    pass(&mut program, 5_000);
    program.receive(received(1, 5_002, 5_003, 40, 0));
    let queues: Vec<_> = program.records().iter().map(|record| part(record, Part::SocketQueue)).collect();
    assert_eq!(queues, [None, None, None, Some(2)]);
}

#[test]
fn packets_of_further_sockets_have_records_without_a_queue() {
    let mut program = with_small_tables();
    for socket in 1..=3 {
        let event = Queued { socket, at: 100_000, arrived: Some(99_000), length: 40, stream_end: 0 };
        program.pairing.handle_event(Event::Queued(event));
        pass(&mut program, 100);
        program.receive(Received { socket, ..received(1, 105, 106, 40, 0) });
        pass(&mut program, 106);
    }
    assert_eq!(program.pairing.overflows(), Overflows { sockets: 1, ..Overflows::default() });
    assert_eq!(program.pairing.unpaired(), 1);
    assert_eq!(program.records().len(), 3);
}

#[test]
fn messages_of_further_threads_have_records_without_t_sip() {
    let mut program = with_small_tables();
    for thread in 1..=3 {
        let at = u64::from(thread) * 100;
        program.receive(received(thread, at, at + 1, 40, 0));
        pass(&mut program, at + 1);
        program.send(Sent { returned: Some((at + 2) * 1_000), ..sent(thread, 1, at + 10, at + 12, 1) });
        pass(&mut program, at + 12);
    }
    // The first thread's message and send call are all that there is room for.
    let full = Overflows { received: 2, ..Overflows::default() };
    assert_eq!(program.pairing.overflows(), full);
    let times: Vec<_> = program.records().iter().map(|record| part(record, Part::Application)).collect();
    assert_eq!(times, [Some(8), None, None]);
}

#[test]
fn a_thread_without_room_ends_what_it_has() {
    let mut program = with_small_tables();
    for (number, at) in [(1, 100), (2, 200)] {
        program.receive(Received { returned: Some(102_000), ..received(1, at, at + 1, 40, 0) });
        for call in 0..3 {
            let returned = Some((at + 2) * 1_000);
            program.send(Sent { returned, ..sent(1, number * 10 + call, at + 10, at + 12, 1) });
        }
        pass(&mut program, at + 12);
    }
    assert!(program.pairing.overflows().sent >= 4, "{:?}", program.pairing.overflows());
    let records = program.records();
    assert_eq!(records.iter().map(|record| record.sent).collect::<Vec<_>>(), [3, 3]);
    assert!(records.iter().all(|record| part(record, Part::Application) == Some(8)));
}

#[test]
fn what_did_not_fit_is_told() {
    let overflows = Overflows { queued: 7, ..Overflows::default() };
    let notes: Vec<String> = overflows.notes().collect();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("7 packets waited in queues longer than the probe can follow"), "{notes:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Queue { length: u32, later: bool },
    Receive { thread: u32, length: u32, index: u16, queue: u32, stream: bool },
    Send { thread: u32, messages: u32, given: u32 },
    Given { thread: u32, call: u32 },
    Loss,
    Time,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u32..4, any::<bool>()).prop_map(|(length, later)| Step::Queue { length, later }),
        4 => (0_u32..3, 1_u32..4, 0_u16..3, 0_u32..5, prop::bool::weighted(0.1)).prop_map(
            |(thread, length, index, queue, stream)| Step::Receive { thread, length, index, queue, stream }
        ),
        3 => (0_u32..3, 0_u32..4, 0_u32..4).prop_map(|(thread, messages, given)| Step::Send { thread, messages, given }),
        1 => (0_u32..3, 0_u32..9).prop_map(|(thread, call)| Step::Given { thread, call }),
        1 => Just(Step::Loss),
        1 => Just(Step::Time),
    ]
}

proptest! {
    /// Whatever is lost, and in whatever order events come, each message has one record, and K_rcv is the sum of its
    /// parts.
    #[test]
    fn any_events_make_consistent_records(steps in prop::collection::vec(step(), 1..200), is_small in any::<bool>()) {
        let mut program = if is_small { with_small_tables() } else { Program::default() };
        let mut messages = 0;
        for (step, now) in steps.into_iter().zip((100_u64..).step_by(10)) {
            match step {
                Step::Queue { length, later } => program.queue(now + u64::from(later) * 15, length),
                Step::Receive { thread, length, index, queue, stream } => {
                    messages += 1;
                    let event = received(thread, now - 3 - u64::from(index), now, length, queue);
                    let returned = (index == 1).then_some((now - 5) * 1_000);
                    let woken = (length == 2).then_some(((now - 9) * 1_000, (now - 8) * 1_000));
                    let stream_end = length.wrapping_mul(u32::MAX / 3);
                    program.receive(Received { index, returned, woken, stream_end, is_stream: stream, ..event });
                }
                Step::Send { thread, messages, given } => program.send(Sent {
                    returned: Some((now - 30) * 1_000),
                    given,
                    ..sent(thread, given, now - 2, now, messages)
                }),
                Step::Given { thread, call } => {
                    program.pairing.handle_event(Event::Given(Given { thread, call, at: now * 1_000, ns: 500 }));
                }
                Step::Loss => program.pairing.handle_loss(),
                Step::Time => program.pairing.handle_timeout(now * 1_000),
            }
        }
        let records = program.records();
        prop_assert_eq!(records.len(), messages);
        for record in records {
            let [stack, queue, copy, whole] =
                [Part::Stack, Part::SocketQueue, Part::Copy, Part::Receive].map(|name| record.times.get(name));
            prop_assert!(copy.is_some() || queue.is_none());
            if let Some(whole) = whole {
                prop_assert_eq!(stack.unwrap() + queue.unwrap() + copy.unwrap(), whole);
                prop_assert_eq!(record.arrived_ns.unwrap() + whole, record.received_ns);
            }
            prop_assert!(record.times.iter().all(|(_, nanos)| nanos < 10_000_000));
            if let Some(wake_up) = record.times.get(Part::WakeUp) {
                prop_assert!(wake_up <= queue.unwrap());
            }
        }
    }
}
