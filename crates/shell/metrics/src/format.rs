//! The formats, and the choice by a scraper's Accept field.

/// Format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4, which every scraper reads.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format for the value of a request's Accept field: OpenMetrics if it is named with a weight above
    /// zero that is not less than that of `text/plain`.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let weight = |wanted: &str| accept.split(',').find_map(|range| weight_of(range, wanted));
        match (weight("application/openmetrics-text"), weight("text/plain")) {
            (Some(open), plain) if open > 0.0 && open >= plain.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Returns the Content-Type of the text.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the weight of a media range (RFC 9110 §12.4.2) if it names this type.
fn weight_of(range: &str, media: &str) -> Option<f32> {
    let mut params = range.split(';').map(str::trim);
    if !params.next()?.eq_ignore_ascii_case(media) {
        return None;
    }
    let weight = params.find_map(|param| param.strip_prefix("q=").or_else(|| param.strip_prefix("Q=")));
    Some(weight.and_then(|weight| weight.trim().parse().ok()).unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scraper_chooses_the_format() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                            version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::accepted(prometheus_2), Format::OpenMetrics);
        for plain in [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "text/html, */*;q=0.8",
            "text/plain, application/openmetrics-text;q=0.5",
            "application/openmetrics-text;q=0",
        ] {
            assert_eq!(Format::accepted(plain), Format::Prometheus, "{plain}");
        }
    }
}
