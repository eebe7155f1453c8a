//! Share groups: alter share group offsets.
