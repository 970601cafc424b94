#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_fuzz::api_bodies::api(data));
