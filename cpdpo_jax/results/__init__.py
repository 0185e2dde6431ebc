"""What a run returns: the labelled data set, statistics over seeds, tables and figures."""
