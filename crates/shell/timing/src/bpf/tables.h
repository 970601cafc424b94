// Tables that the programs share with each other and with the loader.

#ifndef STROWGER_TABLES_H
#define STROWGER_TABLES_H

#include "events.h"
#include "kernel.h"

enum {
    RECEIVES = 1, // bit of a port: what it receives is watched
    SENDS = 2,    // bit of a port: what it sends counts as sent
};

struct {
    NUMBER(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, u8);
    NUMBER(max_entries, 65536);
} ports SEC(".maps");

struct {
    NUMBER(type, MAP_HASH);
    TYPE(key, u32);
    TYPE(value, u8);
    NUMBER(max_entries, 4096);
} processes SEC(".maps");

// Processes by their number in the namespace of the loader, if that is not the first one. They come into the table above
// with their first call.
struct {
    NUMBER(type, MAP_HASH);
    TYPE(key, u32);
    TYPE(value, u8);
    NUMBER(max_entries, 4096);
} processes_inside SEC(".maps");

// What a thread is doing.
struct thread {
    u64 enter; // the current call
    u64 mark;  // beginning of its current message
    u64 argument;
    u32 kind;
    u32 index; // messages in it so far
    u64 returned;
    u64 ready; // first call since it last received in which it waited to receive again; 0: none
    u64 wait_place; // the last call that waited, if nothing was received or sent since; 0: none
    u64 wait;       // its entry
    u64 waited;     // entry of the call that waited directly before the current receive call; 0: none
    u64 loop_place; // the call that waited directly before a receive call: the wait of the program's loop
    u64 waited_place;
    u64 woken;
    u64 ran;
    u64 given_ns;
    u32 call;
    u32 queued;
    u32 given;
    u32 is_queued; // whether a packet of the current message reached a device's queue
};

struct {
    NUMBER(type, MAP_HASH);
    TYPE(key, u32);
    TYPE(value, struct thread);
    NUMBER(max_entries, 16384);
} threads SEC(".maps");

// Packets between device and socket: a table with one place for each hash of a packet's address. A packet that takes
// another's place hides it, so a time is missing but never wrong. The kernel uses an address again after it has freed
// the packet, so a packet that was dropped, or is older than this, is forgotten.
#define PLACES (1 << 12)
#define LONGEST_NS 1000000000ll

enum {
    FREE,
    IN_BACKLOG,
    IN_STACK,
};

struct arrival {
    u64 packet;
    u64 at;
    u32 state;
    u32 unused;
};

struct {
    NUMBER(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct arrival);
    NUMBER(max_entries, PLACES);
} arrivals SEC(".maps");

// The packet that this processor last brought into the stack.
struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    TYPE(key, u32);
    TYPE(value, u64);
    NUMBER(max_entries, 1);
} newest SEC(".maps");

// Packets between a send call and the device, with places as above.
struct departure {
    u64 packet;
    u64 mark;
    u32 thread;
    u32 call;
};

struct {
    NUMBER(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct departure);
    NUMBER(max_entries, PLACES);
} departures SEC(".maps");

struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    TYPE(key, u32);
    TYPE(value, struct received_with_payload);
    NUMBER(max_entries, 1);
} scratch SEC(".maps");

struct {
    NUMBER(type, MAP_RINGBUF);
    NUMBER(max_entries, 16 * 1024 * 1024);
} events SEC(".maps");

// What did not fit into a table.
enum {
    LOST_EVENTS,
    LOST_PROCESSES, // calls of `watch`
    LOST_THREADS,   // system calls of threads without a place
    LOST_SENDS,     // packets between send call and device that lost their place to others
    LOST_KINDS,
};

struct {
    NUMBER(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, u64);
    NUMBER(max_entries, LOST_KINDS);
} lost SEC(".maps");

// Dropped packets by the kernel's reason; a reason beyond the table counts as the last.
#define REASONS 512

struct {
    NUMBER(type, MAP_ARRAY);
    TYPE(key, u32);
    TYPE(value, u64);
    NUMBER(max_entries, REASONS);
} drops SEC(".maps");

#endif
