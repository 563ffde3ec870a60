"""What layers gain by learning, by what they are: the rule by which conversion chooses without a search."""
