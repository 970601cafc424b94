// Events for user space, and the state from which they are made. `raw_event.rs` reads these structures.

#ifndef STROWGER_EVENTS_H
#define STROWGER_EVENTS_H

#include "kernel.h"

enum {
    EVENT_QUEUED = 1,
    EVENT_RECEIVED = 2,
    EVENT_SENT = 3,
    EVENT_GIVEN = 4,
};

// Bytes of a request and of anything else that go to user space: a request shows its type in the first line, a
// response only in its CSeq.
#define REQUEST_PAYLOAD 256
#define MAX_PAYLOAD 1024

// A packet came into a socket's queue, or bytes into a stream.
struct queued {
    u64 kind;
    u64 socket;
    u64 at;
    u64 arrived; // 0: not seen
    u32 length;
    u32 stream_end; // sequence number after the last byte
};

// A message was copied to the program.
struct received {
    u64 kind;
    u64 socket;
    u64 at;
    u64 enter;    // entry of the call; 0: not seen
    u64 mark;     // end of the call's previous message, or entry
    u64 woken;    // last wake-up of the thread; 0: none since it last received
    u64 ran;      // first time that it ran after that
    u64 ready;    // when it was ready to receive: the first call in which it waited for that, or the entry
    u64 returned; // return of its previous receive call; 0: not seen
    u32 thread;
    u32 length;
    u32 queue; // packets left in the queue
    u32 stream_end;
    u16 index; // position in the call
    u16 port;
    u16 protocol;
    u16 payload; // number of bytes that follow
};

struct received_with_payload {
    struct received event;
    u8 payload[MAX_PAYLOAD];
};

// A call that sent returned.
struct sent {
    u64 kind;
    u64 enter;
    u64 exit;
    u64 returned; // return of the thread's last receive call; 0: not seen
    u64 given_ns; // sum of the times from the beginning of a message to its device
    u64 ready;    // when the thread was ready to receive again before the call; 0: it is not since it received
    u32 thread;
    u32 call;     // number of the thread's send call
    u32 messages; // messages sent
    u32 queued;   // packets that the call brought to a device's queue
    u32 given;    // packets given to a device before the call returned
    u32 unused;
};

// A device took a packet after the call that sent it had returned, or on behalf of another thread.
struct given {
    u64 kind;
    u64 at;
    u64 ns; // since its message began
    u32 thread;
    u32 call;
};

#endif
