//! Registration of stream sockets for readiness.

/// Implements [`Source`](mio::event::Source) for a type by that of one of its fields.
macro_rules! delegate_source {
    ($type:ty => $field:ident) => {
        impl mio::event::Source for $type {
            fn register(
                &mut self,
                registry: &mio::Registry,
                token: mio::Token,
                interests: mio::Interest,
            ) -> std::io::Result<()> {
                mio::event::Source::register(&mut self.$field, registry, token, interests)
            }

            fn reregister(
                &mut self,
                registry: &mio::Registry,
                token: mio::Token,
                interests: mio::Interest,
            ) -> std::io::Result<()> {
                mio::event::Source::reregister(&mut self.$field, registry, token, interests)
            }

            fn deregister(&mut self, registry: &mio::Registry) -> std::io::Result<()> {
                mio::event::Source::deregister(&mut self.$field, registry)
            }
        }
    };
}

pub(super) use delegate_source;
