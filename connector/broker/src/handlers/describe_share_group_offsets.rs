//! Share groups: describe share group offsets.
