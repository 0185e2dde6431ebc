"""Playing learners on CMDPs: the plan, blocks of lanes, the compiled loop and the host's, randomness, the monitor."""
