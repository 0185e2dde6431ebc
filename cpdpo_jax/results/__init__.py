"""Results of runs: the labelled data set, statistics over seeds, tables and figures."""
