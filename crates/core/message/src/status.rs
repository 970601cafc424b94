//! Status codes and their customary reason phrases (RFC 3261 §21 and the supported extensions).

use core::fmt;

/// A status code, 100 to 699.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal;)*) => {
        impl Status {
            $(#[doc = concat!(stringify!($code), " ", $reason)] pub const $name: Self = Self($code);)*

            /// Returns the customary reason phrase, or a general one for a code that the server never generates.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    100..=199 => "Session Progress",
                    200..=299 => "OK",
                    300..=399 => "Redirection",
                    400..=499 => "Request Failure",
                    500..=599 => "Server Failure",
                    _ => "Global Failure",
                }
            }
        }
    };
}

statuses! {
    TRYING = 100 "Trying";
    RINGING = 180 "Ringing";
    OK = 200 "OK";
    MOVED_TEMPORARILY = 302 "Moved Temporarily";
    BAD_REQUEST = 400 "Bad Request";
    UNAUTHORIZED = 401 "Unauthorized";
    FORBIDDEN = 403 "Forbidden";
    NOT_FOUND = 404 "Not Found";
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    PROXY_AUTHENTICATION_REQUIRED = 407 "Proxy Authentication Required";
    REQUEST_TIMEOUT = 408 "Request Timeout";
    UNSUPPORTED_URI_SCHEME = 416 "Unsupported URI Scheme";
    BAD_EXTENSION = 420 "Bad Extension";
    INTERVAL_TOO_BRIEF = 423 "Interval Too Brief";
    FLOW_FAILED = 430 "Flow Failed";
    FIRST_HOP_LACKS_OUTBOUND = 439 "First Hop Lacks Outbound Support";
    MAX_BREADTH_EXCEEDED = 440 "Max-Breadth Exceeded";
    TEMPORARILY_UNAVAILABLE = 480 "Temporarily Unavailable";
    NO_SUCH_TRANSACTION = 481 "Call/Transaction Does Not Exist";
    LOOP_DETECTED = 482 "Loop Detected";
    TOO_MANY_HOPS = 483 "Too Many Hops";
    BUSY_HERE = 486 "Busy Here";
    REQUEST_TERMINATED = 487 "Request Terminated";
    SERVER_ERROR = 500 "Server Internal Error";
    NOT_IMPLEMENTED = 501 "Not Implemented";
    BAD_GATEWAY = 502 "Bad Gateway";
    SERVICE_UNAVAILABLE = 503 "Service Unavailable";
    VERSION_NOT_SUPPORTED = 505 "Version Not Supported";
    MESSAGE_TOO_LARGE = 513 "Message Too Large";
    BUSY_EVERYWHERE = 600 "Busy Everywhere";
    DECLINE = 603 "Decline";
}

impl Status {
    /// Creates a status from a number; `None` outside 100 to 699.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 699 { Some(Self(code)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The first digit: 1 for provisional, 2 for success, 3 to 6 for the others.
    #[must_use]
    pub const fn class(self) -> u16 {
        self.0 / 100
    }

    /// Whether this is 1xx.
    #[must_use]
    pub const fn is_provisional(self) -> bool {
        self.class() == 1
    }

    /// Whether this is 2xx.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.class() == 2
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}
