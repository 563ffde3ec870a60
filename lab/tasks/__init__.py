"""The networks of MLPerf Tiny, trained: sizes, instructions, and what they learn."""
