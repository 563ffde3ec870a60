"""What calls of aten ops become: the rules that the entries of the op table name."""
