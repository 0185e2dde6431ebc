"""What every room uses: the vocabulary (`types`), files that are whole or not there, words, the machine."""
