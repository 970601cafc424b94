// Where a packet's time goes: programs on tracepoints of the network stack, of system calls and of the scheduler.
//
// All are raw tracepoints with types (tp_btf), the only kind that needs neither kprobes nor trampolines. Each does as
// little as possible for packets and threads that are not watched. Pairing of the events is done in user space.

#include "calls.h"
#include "events.h"
#include "kernel.h"
#include "tables.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Settings, written by the loader.
const volatile u32 learns_processes = 0; // each process that receives on a watched port is watched
const volatile u32 only_protocol = 0;    // 0: both
const volatile u64 namespace_device = 0; // namespace of the loader's process numbers
const volatile u64 namespace_inode = 0;  // 0: the first one

INLINE void count_lost(u32 kind) {
    u64 *count = map_lookup(&lost, &kind);
    if (count)
        __sync_fetch_and_add(count, 1);
}

INLINE void emit(void *event, u64 size) {
    if (ringbuf_output(&events, event, size, RINGBUF_NO_WAKEUP))
        count_lost(LOST_EVENTS);
}

INLINE u8 port_bits(u16 port) {
    u32 key = port;
    u8 *bits = map_lookup(&ports, &key);
    return bits ? *bits : 0;
}

// Returns the bits of the socket's local port; 0 if it is no internet socket.
INLINE u8 socket_bits(struct sock *socket) {
    u16 family = socket->__sk_common.skc_family;
    if (family != FAMILY_INET && family != FAMILY_INET6)
        return 0;
    return port_bits(socket->__sk_common.skc_num);
}

INLINE int is_measured(u16 protocol) {
    return !only_protocol || protocol == only_protocol;
}

// Half of the address is copied since the verifier allows no arithmetic with a pointer.
INLINE u32 place_of(u64 packet) {
    u32 half = (u32)packet;
    OPAQUE(half);
    return (half * 0x9e3779b1u) >> (32 - 12);
}

INLINE struct arrival *arrival_at(u64 packet) {
    u32 place = place_of(packet);
    return map_lookup(&arrivals, &place);
}

INLINE struct thread *this_thread(void) {
    u32 id = (u32)pid_tgid();
    return map_lookup(&threads, &id);
}

INLINE int is_watched(u32 process) {
    return map_lookup(&processes, &process) != 0;
}

INLINE void watch(u32 process) {
    u8 one = 1;
    if (map_update(&processes, &process, &one, 0))
        count_lost(LOST_PROCESSES);
}

// Returns whether the own process is watched by its number in the loader's namespace; it is by its own then, too.
INLINE int is_watched_inside(u32 process) {
    if (!namespace_inode)
        return 0;
    struct namespace_ids ids = {};
    if (ids_in_namespace(namespace_device, namespace_inode, &ids, sizeof(ids)))
        return 0;
    if (!map_lookup(&processes_inside, &ids.process))
        return 0;
    watch(process);
    return 1;
}

// ---- From the device to the socket ----

SEC("tp_btf/netif_rx")
int on_backlog(u64 *context) {
    u64 packet = context[0];
    struct arrival *arrival = arrival_at(packet);
    if (arrival) {
        arrival->packet = packet;
        arrival->at = ktime_ns();
        arrival->state = IN_BACKLOG;
    }
    return 0;
}

SEC("tp_btf/netif_receive_skb")
int on_arrival(u64 *context) {
    u64 packet = context[0];
    u32 zero = 0;
    struct arrival *arrival = arrival_at(packet);
    u64 *current = map_lookup(&newest, &zero);
    if (!arrival || !current)
        return 0;
    *current = packet;
    if (arrival->packet != packet || arrival->state != IN_BACKLOG) {
        arrival->packet = packet;
        arrival->at = ktime_ns();
    }
    arrival->state = IN_STACK;
    return 0;
}

// Takes the arrival of a packet that is still in the stack; 0 if there is none.
INLINE u64 take_arrival(u64 packet, u64 now) {
    struct arrival *arrival = arrival_at(packet);
    if (!arrival || arrival->packet != packet || arrival->state != IN_STACK)
        return 0;
    arrival->state = FREE;
    return (s64)(now - arrival->at) < LONGEST_NS ? arrival->at : 0;
}

INLINE u64 take_newest_arrival(u64 *packet, u64 now) {
    u32 zero = 0;
    u64 *current = map_lookup(&newest, &zero);
    if (!current)
        return 0;
    *packet = *current;
    return take_arrival(*current, now);
}

// Largest number of packets that one processor queues at once for others.
#define MAX_QUEUED_TOGETHER 16

INLINE void on_datagram_queued(struct sock *socket, struct queued *event) {
    struct sk_buff *packet = socket->sk_receive_queue.prev;
    u64 arrived = take_arrival((u64)packet, event->at);
    if (!arrived) {
        // Either a receiver was faster, or all packets of this socket were announced together before.
        u64 current = 0;
        arrived = take_newest_arrival(&current, event->at);
        if (!arrived)
            return;
        packet = (struct sk_buff *)current;
    }
    // The kernel announces packets that several processors queued at the same time after all of them are in the
    // queue: those before the last have not been announced either if they are still among the arrivals.
    for (int i = 0; i < MAX_QUEUED_TOGETHER && arrived; i++) {
        event->arrived = arrived;
        event->length = READ(packet->len);
        emit(event, sizeof(*event));
        packet = READ(packet->prev);
        arrived = take_arrival((u64)packet, event->at);
    }
}

SEC("tp_btf/sk_data_ready")
int on_queued(u64 *context) {
    struct sock *socket = (struct sock *)context[0];
    if (!(socket_bits(socket) & RECEIVES))
        return 0;
    struct queued event = {.kind = EVENT_QUEUED, .socket = (u64)socket, .at = ktime_ns()};
    u16 protocol = socket->sk_protocol;
    if (!is_measured(protocol))
        return 0;
    if (protocol == PROTOCOL_UDP) {
        on_datagram_queued(socket, &event);
    } else if (protocol == PROTOCOL_TCP) {
        u64 packet;
        struct tcp_sock *stream = (struct tcp_sock *)socket;
        event.arrived = take_newest_arrival(&packet, event.at);
        event.stream_end = READ(stream->rcv_nxt);
        emit(&event, sizeof(event));
    }
    return 0;
}

INLINE void count_drop(struct sock *socket, u32 reason) {
    if (!(socket_bits(socket) & RECEIVES) || !is_measured(socket->sk_protocol))
        return;
    if (reason >= REASONS)
        reason = REASONS - 1;
    u64 *count = map_lookup(&drops, &reason);
    if (count)
        __sync_fetch_and_add(count, 1);
}

INLINE struct departure *departure_at(u64 packet) {
    u32 place = place_of(packet);
    return map_lookup(&departures, &place);
}

// A packet is dropped: by the stack, the backlog of a processor or a queueing discipline.
SEC("tp_btf/kfree_skb")
int on_free(u64 *context) {
    u64 packet = context[0];
    struct arrival *arrival = arrival_at(packet);
    if (arrival && arrival->packet == packet)
        arrival->state = FREE;
    struct departure *departure = departure_at(packet);
    if (departure && departure->packet == packet)
        departure->packet = 0;
    return 0;
}

// Loaded where kfree_skb has the receiving socket, that is since Linux 6.11.
SEC("tp_btf/kfree_skb")
int on_drop(u64 *context) {
    struct sock *socket = (struct sock *)context[3];
    if (socket)
        count_drop(socket, (u32)context[2]);
    return 0;
}

// Loaded where the above is not: datagrams for which the socket had no room, with reason 0.
SEC("tp_btf/udp_fail_queue_rcv_skb")
int on_no_room(u64 *context) {
    count_drop((struct sock *)context[1], 0);
    return 0;
}

// ---- From the socket to the program ----

INLINE u32 queue_of(struct sock *socket, u16 protocol) {
    u32 length = socket->sk_receive_queue.qlen;
    if (protocol == PROTOCOL_UDP) {
        struct udp_sock *datagrams = (struct udp_sock *)socket;
        length += READ(datagrams->reader_queue.qlen);
    }
    return length;
}

INLINE u32 copy_payload(u8 *to, const struct thread *thread, u32 length) {
    const u8 *from = payload_of(thread->kind, (void *)thread->argument, thread->index);
    u32 size = length > REQUEST_PAYLOAD ? REQUEST_PAYLOAD : length;
    OPAQUE(size);
    if (!from || size > REQUEST_PAYLOAD || read_user(to, size, from))
        return 0;
    if (length <= REQUEST_PAYLOAD || to[0] != 'S' || to[1] != 'I' || to[2] != 'P' || to[3] != '/')
        return size;
    u32 more = length - REQUEST_PAYLOAD;
    if (more > MAX_PAYLOAD - REQUEST_PAYLOAD)
        more = MAX_PAYLOAD - REQUEST_PAYLOAD;
    OPAQUE(more);
    if (more > MAX_PAYLOAD - REQUEST_PAYLOAD || read_user(to + REQUEST_PAYLOAD, more, from + REQUEST_PAYLOAD))
        return size;
    return REQUEST_PAYLOAD + more;
}

// A receive call that waited in vain, until a time-out or a signal: the thread was ready from the entry on.
INLINE void on_nothing_received(void) {
    struct thread *thread = this_thread();
    if (thread && is_receive(thread->kind) && !thread->ready)
        thread->ready = thread->enter;
}

INLINE u64 ready_of(const struct thread *thread) {
    if (thread->ready)
        return thread->ready;
    return thread->waited ? thread->waited : thread->enter;
}

SEC("tp_btf/sock_recv_length")
int on_received(u64 *context) {
    struct sock *socket = (struct sock *)context[0];
    s32 length = (s32)context[1];
    // A look at a packet does not receive it; errors and send stamps come by another queue.
    if ((context[2] & (FLAG_PEEK | FLAG_ERROR_QUEUE)) || !(socket_bits(socket) & RECEIVES))
        return 0;
    if (length < 0) {
        if (!(context[2] & FLAG_DO_NOT_WAIT))
            on_nothing_received();
        return 0;
    }
    u64 ids = pid_tgid();
    struct thread *thread = this_thread();
    if (!thread) {
        // Its calls are seen from the next one on.
        if (learns_processes)
            watch(ids >> 32);
        return 0;
    }
    if (!is_receive(thread->kind))
        return 0;
    u16 protocol = socket->sk_protocol;
    if (!is_measured(protocol) || (protocol == PROTOCOL_TCP && length == 0))
        return 0;
    u32 zero = 0;
    struct received_with_payload *room = map_lookup(&scratch, &zero);
    if (!room)
        return 0;
    struct received *event = &room->event;
    event->kind = EVENT_RECEIVED;
    event->socket = (u64)socket;
    event->at = ktime_ns();
    event->enter = thread->enter;
    event->mark = thread->mark;
    event->woken = thread->woken;
    event->ran = thread->ran;
    event->ready = ready_of(thread);
    event->returned = thread->returned;
    event->thread = (u32)ids;
    event->length = length;
    event->queue = queue_of(socket, protocol);
    event->stream_end = 0;
    if (protocol == PROTOCOL_TCP) {
        struct tcp_sock *stream = (struct tcp_sock *)socket;
        event->stream_end = READ(stream->copied_seq);
    }
    event->index = thread->index;
    event->port = socket->__sk_common.skc_num;
    event->protocol = protocol;
    u32 payload = copy_payload(room->payload, thread, length);
    if (payload > MAX_PAYLOAD)
        payload = MAX_PAYLOAD;
    event->payload = payload;
    emit(room, sizeof(*event) + payload);
    if (thread->waited_place && !thread->index)
        thread->loop_place = thread->waited_place;
    thread->index++;
    if (thread->kind == RECEIVE_MESSAGES)
        thread->mark = ktime_ns();
    thread->woken = 0;
    thread->ran = 0;
    return 0;
}

// ---- System calls ----

// A program waits in its loop until something can be received, and elsewhere for the answer of a name server or
// database. Only the first makes it ready for the next packet. It is the one that a receive call has followed
// directly.
INLINE void on_wait(struct thread *thread, u64 place, u64 now) {
    thread->wait_place = place;
    thread->wait = now;
    if (place == thread->loop_place && !thread->ready)
        thread->ready = now;
}

SEC("tp_btf/sys_enter")
int on_call(u64 *context) {
    u32 kind = kind_of((long)context[1]);
    if (kind == NOTHING)
        return 0;
    u64 ids = pid_tgid();
    u32 process = ids >> 32, id = (u32)ids;
    struct thread *thread = map_lookup(&threads, &id);
    if (!thread) {
        if (!is_watched(process) && !is_watched_inside(process))
            return 0;
        struct thread new = {};
        map_update(&threads, &id, &new, 0);
        thread = map_lookup(&threads, &id);
        if (!thread) {
            count_lost(LOST_THREADS);
            return 0;
        }
    }
    u64 now = ktime_ns();
    struct pt_regs *registers = (struct pt_regs *)context[0];
    if (kind == WAIT) {
        on_wait(thread, place_of_wait((long)context[1], FIRST_ARGUMENT(registers)), now);
        return 0;
    }
    thread->waited_place = is_receive(kind) ? thread->wait_place : 0;
    thread->waited = thread->waited_place ? thread->wait : 0;
    thread->wait_place = 0;
    thread->kind = kind;
    thread->enter = now;
    thread->mark = now;
    thread->index = 0;
    if (is_send(kind)) {
        thread->call++;
        thread->queued = 0;
        thread->given = 0;
        thread->given_ns = 0;
        thread->is_queued = 0;
    } else {
        thread->argument = SECOND_ARGUMENT(registers);
    }
    return 0;
}

INLINE void emit_sent(struct thread *thread, u64 now) {
    struct sent event = {
        .kind = EVENT_SENT,
        .enter = thread->enter,
        .exit = now,
        .returned = thread->returned,
        .given_ns = thread->given_ns,
        .ready = thread->ready,
        .thread = (u32)pid_tgid(),
        .call = thread->call,
        .messages = thread->index,
        .queued = thread->queued,
        .given = thread->given,
    };
    emit(&event, sizeof(event));
}

SEC("tp_btf/sys_exit")
int on_return(u64 *context) {
    struct pt_regs *registers = (struct pt_regs *)context[0];
    u32 kind = kind_of(SYSTEM_CALL(registers));
    if (kind == NOTHING || kind == WAIT)
        return 0;
    struct thread *thread = this_thread();
    if (!thread)
        return 0;
    if (thread->index) {
        u64 now = ktime_ns();
        if (is_receive(thread->kind)) {
            thread->returned = now;
            thread->ready = 0;
        } else if (is_send(thread->kind)) {
            emit_sent(thread, now);
        }
    }
    thread->kind = NOTHING;
    return 0;
}

// ---- From the program to the device ----

INLINE struct thread *sending_thread(struct sock *socket) {
    if (!(socket_bits(socket) & SENDS))
        return 0;
    struct thread *thread = this_thread();
    return thread && is_send(thread->kind) ? thread : 0;
}

SEC("tp_btf/sock_send_length")
int on_sent(u64 *context) {
    if ((s32)context[1] <= 0)
        return 0;
    struct thread *thread = sending_thread((struct sock *)context[0]);
    if (!thread)
        return 0;
    thread->index++;
    if (thread->kind == SEND_MESSAGES) {
        thread->is_queued = 0;
        thread->mark = ktime_ns();
    }
    return 0;
}

SEC("tp_btf/net_dev_queue")
int on_device_queue(u64 *context) {
    struct sk_buff *packet = (struct sk_buff *)context[0];
    struct departure *departure = departure_at((u64)packet);
    if (!departure)
        return 0;
    // One that the kernel had cut into segments is freed without reaching a device.
    if (departure->packet == (u64)packet)
        departure->packet = 0;
    struct sock *socket = packet->sk;
    if (!socket)
        return 0;
    struct thread *thread = sending_thread(socket);
    // Only the first packet of a message counts.
    if (!thread || thread->is_queued)
        return 0;
    if (departure->packet && (s64)(thread->mark - departure->mark) < LONGEST_NS)
        count_lost(LOST_SENDS);
    departure->packet = (u64)packet;
    departure->mark = thread->mark;
    departure->thread = (u32)pid_tgid();
    departure->call = thread->call;
    thread->is_queued = 1;
    thread->queued++;
    return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int on_device(u64 *context) {
    u64 packet = context[0];
    struct departure *departure = departure_at(packet);
    if (!departure || departure->packet != packet)
        return 0;
    u64 now = ktime_ns();
    u64 took = now - departure->mark;
    departure->packet = 0;
    if ((s64)took > LONGEST_NS)
        return 0;
    struct thread *thread = this_thread();
    if (thread && is_send(thread->kind) && departure->thread == (u32)pid_tgid() && departure->call == thread->call) {
        thread->given++;
        thread->given_ns += took;
        return 0;
    }
    struct given event = {
        .kind = EVENT_GIVEN, .at = now, .ns = took, .thread = departure->thread, .call = departure->call};
    emit(&event, sizeof(event));
    return 0;
}

// ---- Scheduler and processes ----

SEC("tp_btf/sched_wakeup")
int on_wakeup(u64 *context) {
    struct task_struct *task = (struct task_struct *)context[0];
    u32 id = task->pid;
    struct thread *thread = map_lookup(&threads, &id);
    if (thread) {
        thread->woken = ktime_ns();
        thread->ran = 0;
    }
    return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *context) {
    struct task_struct *next = (struct task_struct *)context[2];
    u32 id = next->pid;
    if (!id)
        return 0;
    struct thread *thread = map_lookup(&threads, &id);
    if (thread && thread->woken && !thread->ran)
        thread->ran = ktime_ns();
    return 0;
}

SEC("tp_btf/sched_process_fork")
int on_fork(u64 *context) {
    struct task_struct *parent = (struct task_struct *)context[0];
    struct task_struct *child = (struct task_struct *)context[1];
    u32 process = parent->tgid;
    // The parent is the current process.
    if (child->tgid != process && (is_watched(process) || is_watched_inside(process)))
        watch(child->tgid);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(u64 *context) {
    struct task_struct *task = (struct task_struct *)context[0];
    u32 id = task->pid, process = task->tgid;
    map_delete(&threads, &id);
    if (id == process)
        map_delete(&processes, &process);
    return 0;
}
