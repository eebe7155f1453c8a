//! Share groups: delete share group offsets.
