//! SIPp's distributions of pauses and samples, whose numbers are in ms, as laws.

use super::Diagnostic;
use super::reader::Reader;
use super::xml::Element;
use crate::law::Law;

/// Attributes that define a distribution.
pub(super) const NAMES: [&str; 14] = [
    "distribution",
    "value",
    "min",
    "max",
    "mean",
    "stdev",
    "lambda",
    "k",
    "x_m",
    "theta",
    "p",
    "n",
    "sanity_check",
    "milliseconds",
];

/// Returns the law that an element's attributes define; `None` if there are none.
pub(super) fn law(reader: &Reader<'_>, element: &Element) -> Result<Option<Law>, Diagnostic> {
    let number = |name: &str| number(reader, element, name);
    let Some(distribution) = element.attribute("distribution") else {
        // SIPp's form without a distribution name.
        return match (element.attribute("min"), element.attribute("max"), element.attribute("milliseconds")) {
            (None, None, None) => Ok(None),
            (None, None, Some(_)) => made(reader, element, &format!("{}ms", number("milliseconds")?)),
            _ => made(reader, element, &format!("uniform(min={}ms,max={}ms)", number("min")?, number("max")?)),
        };
    };
    let text = match distribution.value.as_str() {
        "fixed" => format!("{}ms", number("value")?),
        "uniform" => format!("uniform(min={}ms,max={}ms)", number("min")?, number("max")?),
        "normal" => format!("normal(mean={}ms,sd={}ms)", number("mean")?, number("stdev")?),
        // The mean and standard deviation of the logarithm.
        "lognormal" => format!("lognormal(median={}ms,sigma={})", number("mean")?.exp(), number("stdev")?),
        "exponential" => format!("exp(mean={}ms)", number("mean")?),
        "weibull" => format!("weibull(shape={},scale={}ms)", number("k")?, number("lambda")?),
        "pareto" => format!("pareto(shape={},scale={}ms)", number("k")?, number("x_m")?),
        "gamma" => format!("gamma(shape={},scale={}ms)", number("k")?, number("theta")?),
        "negbin" => {
            let (p, n) = (number("p")?, number("n")?);
            let what = format!(
                "the distribution 'negbin' is not supported; distribution=\"gamma\" k=\"{n}\" theta=\"{:.3}\" has the same mean",
                (1.0 - p) / p
            );
            return Err(reader.source.diagnostic(distribution.at, what));
        }
        other => {
            let what = format!(
                "the distribution '{other}' is not known; there are fixed, uniform, normal, lognormal, exponential, weibull, \
                 pareto and gamma"
            );
            return Err(reader.source.diagnostic(distribution.at, what));
        }
    };
    made(reader, element, &text)
}

fn made(reader: &Reader<'_>, element: &Element, text: &str) -> Result<Option<Law>, Diagnostic> {
    match Law::parse(text) {
        Ok(law) => Ok(Some(law)),
        Err(error) => Err(reader.source.diagnostic(element.at, format!("<{}>: {error}", element.name))),
    }
}

/// Parses a number that is not negative.
fn number(reader: &Reader<'_>, element: &Element, name: &str) -> Result<f64, Diagnostic> {
    let Some(attribute) = element.attribute(name) else {
        let what = format!("<{}> needs {name}=\"…\" for this distribution", element.name);
        return Err(reader.source.diagnostic(element.at, what));
    };
    match attribute.value.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && (0.0..=1e12).contains(&number) => Ok(number),
        _ => {
            let what = format!("{name}=\"{}\" is not a number from 0 to 10^12", attribute.value);
            Err(reader.source.diagnostic(attribute.at, what))
        }
    }
}
