#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_fuzz::wire_bodies::websocket(data));
