"""Tables of the report: one function each, from the models' results to rows."""
