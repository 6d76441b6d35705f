"""From requests and generations to segments: what a session records. Pure, without tasks, clocks or sockets."""
